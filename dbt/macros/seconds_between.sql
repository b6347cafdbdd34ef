{# Seconds from one instant to another, as a double with microseconds; negative if the second comes first. #}
{% macro seconds_between(from_instant, to_instant) -%}
cast(unix_micros({{ to_instant }}) - unix_micros({{ from_instant }}) as double) / 1000000D
{%- endmacro %}
