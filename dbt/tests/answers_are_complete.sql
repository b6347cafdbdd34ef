{# Every answer row of every query is in the mart, and no other. #}
with expected as (
    {% for query in var('queries') %}
    select '{{ query.id }}' as query, count(*) as answers
    from {{ ref('stg_' ~ query.answers) }}
    {{ 'union all' if not loop.last }}
    {% else %}
    {{ nothing([['query', 'string'], ['answers', 'bigint']]) }}
    {% endfor %}
),

found as (
    select query, count(*) as answers
    from {{ ref('answers') }}
    group by query
)

select query, coalesce(expected.answers, 0) as expected, coalesce(found.answers, 0) as found
from expected
full outer join found using (query)
where coalesce(expected.answers, 0) <> coalesce(found.answers, 0)
