{# The instant at which an interval starts, from its label: 2013-02-08T10, or with minutes and seconds (2013-02-08T1015)
   where intervals are not whole hours. #}
{% macro interval_start(label) -%}
to_timestamp(rpad(replace({{ label }}, 'T', ''), 16, '0'), 'yyyy-MM-ddHHmmss')
{%- endmacro %}
