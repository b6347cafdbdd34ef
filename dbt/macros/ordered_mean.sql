{# The mean of doubles, the same bits in every run; see ordered_sum. Null if no value. #}
{% macro ordered_mean(expression) -%}
{{ share(ordered_sum(expression), 'count(' ~ expression ~ ')') }}
{%- endmacro %}
