{# The Horvitz-Thompson estimate of a total from a Bernoulli sample: each sampled value weighs 1/fraction. With the
   value 1 it is a count. Null values count for nothing. #}
{% macro ht_total(value, fraction) -%}
{{ ordered_sum(share(value, fraction)) }}
{%- endmacro %}
