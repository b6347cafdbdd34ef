{# An answer's own columns as one JSON object, nulls written out, names as the query's SELECT gives them. #}
{% macro values_json(columns) -%}
to_json(
    named_struct({% for column in columns %}'{{ column }}', `{{ column }}`{{ ', ' if not loop.last }}{% endfor %}),
    map('ignoreNullFields', 'false')
)
{%- endmacro %}
