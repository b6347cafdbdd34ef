{% if not var('queries') %}
{{ nothing([['query', 'string'], ['window_end', 'timestamp'], ['rank', 'bigint'], ['values_json', 'string'],
            ['interval', 'string']]) }}
{% endif %}
{% for query in var('queries') %}
select
    '{{ query.id }}' as query,
    window_end,
    {{ '`rank`' if query.ranked else 'cast(null as bigint)' }} as `rank`,
    {{ values_json(query.columns) }} as values_json,
    `interval`
from {{ ref('stg_truth_' ~ query.id) }}
{{ 'union all' if not loop.last }}
{% endfor %}
