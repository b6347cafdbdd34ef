{%- set streams = var('streams') | selectattr('history') | selectattr('numeric_columns') | list %}
{% if not streams %}
{{ nothing([['stream', 'string'], ['leaf_start', 'timestamp'], ['column_name', 'string'], ['sampled_values', 'bigint'],
            ['estimated_count', 'double'], ['estimated_total', 'double'], ['estimated_count_variance', 'double'],
            ['estimated_total_variance', 'double'], ['interval', 'string']]) }}
{% else %}
with sampled as (
    {% for stream in streams %}
    select
        '{{ stream.name }}' as stream,
        leaf_start,
        fraction,
        stack(
            {{ stream.numeric_columns | length }}
            {%- for column in stream.numeric_columns %}, '{{ column }}', cast(`{{ column }}` as double){% endfor %}
        ) as (column_name, y),
        `interval`
    from {{ ref('stg_history_samples_' ~ stream.name) }}
    {{ 'union all' if not loop.last }}
    {% endfor %}
)

select
    stream,
    leaf_start,
    column_name,
    count(*) as sampled_values,
    {{ ht_total('1D', 'fraction') }} as estimated_count,
    {{ ht_total('y', 'fraction') }} as estimated_total,
    {{ ht_variance('1D', 'fraction') }} as estimated_count_variance,
    {{ ht_variance('y', 'fraction') }} as estimated_total_variance,
    `interval`
from sampled
where y is not null
group by stream, leaf_start, column_name, `interval`
{% endif %}
