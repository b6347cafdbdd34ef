{# All answer rows of a tick have the same widths: one stands for all. #}
{% if not var('queries') %}
{{ nothing([['query', 'string'], ['window_end', 'timestamp'], ['emitted_at', 'timestamp'], ['alias', 'string'],
            ['stream', 'string'], ['range_s', 'double'], ['width_s', 'double'], ['coverage', 'double'],
            ['support_level', 'string'], ['slack_s', 'double'], ['interval', 'string']]) }}
{% else %}
with ticks as (
    select
        query,
        window_end,
        first(emitted_at) as emitted_at,
        first(width_s) as width_s,
        first(range_s) as range_s,
        first(coverage) as coverage,
        first(support_level) as support_level,
        first(slack_s) as slack_s,
        `interval`
    from {{ ref('int_answers') }}
    group by query, window_end, `interval`
),

widths as (
    select
        query,
        window_end,
        emitted_at,
        range_s as ranges_s,
        explode(width_s) as (alias, width_s),
        coverage,
        support_level,
        slack_s,
        `interval`
    from ticks
),

declared (query, alias, stream) as (
    values
    {% for query in var('queries') %}
    {%- set last_query = loop.last %}
    {%- for window in query.windows %}
    ('{{ query.id }}', '{{ window.alias }}', '{{ window.stream }}')
    {{- ',' if not (last_query and loop.last) }}
    {%- endfor %}
    {% endfor %}
)

select
    widths.query,
    widths.window_end,
    widths.emitted_at,
    widths.alias,
    declared.stream,
    widths.ranges_s[widths.alias] as range_s,
    widths.width_s,
    widths.coverage,
    widths.support_level,
    widths.slack_s,
    widths.`interval`
from widths
left join declared on widths.query = declared.query and widths.alias = declared.alias
{% endif %}
