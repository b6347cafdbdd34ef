{# The sum of doubles in ascending order of the values. Addition of doubles is not associative: a plain SUM depends on
   how the rows are spread over files and tasks, this one does not, so a re-run gives the same bits. Null without any
   value. #}
{% macro ordered_sum(expression) -%}
case when count({{ expression }}) > 0 then aggregate(
    array_sort(collect_list(cast({{ expression }} as double))), cast(0 as double), (total, value) -> total + value
) end
{%- endmacro %}
