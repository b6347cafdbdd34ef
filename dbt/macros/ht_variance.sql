{# The estimated variance of ht_total: sum of y^2 (1 - f) / f^2 over the sampled rows. #}
{% macro ht_variance(value, fraction) -%}
{{ ordered_sum(value ~ ' * ' ~ value ~ ' * (1D - ' ~ fraction ~ ') / (' ~ fraction ~ ' * ' ~ fraction ~ ')') }}
{%- endmacro %}
