{% if not var('streams') %}
{{ nothing([['stream', 'string'], ['event_id', 'string'], ['event_time', 'timestamp'], ['arrival_time', 'timestamp'],
            ['lateness_s', 'double'], ['interval', 'string']]) }}
{% endif %}
{% for stream in var('streams') %}
select
    '{{ stream.name }}' as stream,
    event_id,
    event_time,
    arrival_time,
    {{ seconds_between('event_time', 'arrival_time') }} as lateness_s,
    `interval`
from {{ ref('stg_events_' ~ stream.name) }}
{{ 'union all' if not loop.last }}
{% endfor %}
