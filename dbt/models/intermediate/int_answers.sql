{% if not var('queries') %}
{{ nothing([['query', 'string'], ['window_end', 'timestamp'], ['emitted_at', 'timestamp'], ['rank', 'bigint'],
            ['values_json', 'string'], ['width_s', 'map<string,double>'], ['range_s', 'map<string,double>'],
            ['coverage', 'double'], ['support_level', 'string'], ['slack_s', 'double'], ['accuracy_expected', 'double'],
            ['interval', 'string']]) }}
{% endif %}
{% for query in var('queries') %}
select
    '{{ query.id }}' as query,
    window_end,
    emitted_at,
    {{ '`rank`' if query.ranked else 'cast(null as bigint)' }} as `rank`,
    {{ values_json(query.columns) }} as values_json,
    width_s,
    range_s,
    coverage,
    support_level,
    slack_s,
    accuracy_expected,
    `interval`
from {{ ref('stg_' ~ query.answers) }}
{{ 'union all' if not loop.last }}
{% endfor %}
