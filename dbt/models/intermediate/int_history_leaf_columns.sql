{%- set streams = var('streams') | selectattr('history') | list %}
{% if not streams %}
{{ nothing([['stream', 'string'], ['leaf_start', 'timestamp'], ['leaf_end', 'timestamp'], ['tuples', 'bigint'],
            ['sampled', 'bigint'], ['fraction', 'double'], ['column_name', 'string'], ['exact_count', 'bigint'],
            ['exact_total', 'double'], ['least_value', 'double'], ['greatest_value', 'double'],
            ['sum_squares', 'double'], ['interval', 'string']]) }}
{% endif %}
{% for stream in streams %}
select
    stream,
    leaf_start,
    leaf_end,
    tuples,
    sampled,
    fraction,
    {% if stream.numeric_columns %}
    stack(
        {{ stream.numeric_columns | length }}
        {%- for column in stream.numeric_columns %},
        '{{ column }}', `{{ column }}_count`, `{{ column }}_sum`, `{{ column }}_min`, `{{ column }}_max`,
        `{{ column }}_sum_squares`
        {%- endfor %}
    ) as (column_name, exact_count, exact_total, least_value, greatest_value, sum_squares),
    {% else %}
    cast(null as string) as column_name,
    cast(null as bigint) as exact_count,
    cast(null as double) as exact_total,
    cast(null as double) as least_value,
    cast(null as double) as greatest_value,
    cast(null as double) as sum_squares,
    {% endif %}
    `interval`
from {{ ref('stg_history_leaves') }}
where stream = '{{ stream.name }}'{{ '' if stream.numeric_columns else ' and false' }}
{{ 'union all' if not loop.last }}
{% endfor %}
