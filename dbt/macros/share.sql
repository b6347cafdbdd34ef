{# numerator / denominator as a double; null where the denominator is zero, in ANSI mode and out of it alike. #}
{% macro share(numerator, denominator) -%}
try_divide(cast({{ numerator }} as double), cast({{ denominator }} as double))
{%- endmacro %}
