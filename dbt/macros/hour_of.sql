{# The hour, UTC, that an instant lies in, as the timestamp of the hour's start. #}
{% macro hour_of(instant) -%}
date_trunc('HOUR', {{ instant }})
{%- endmacro %}
