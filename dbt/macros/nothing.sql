{# A relation of these typed columns without rows: what a union over no query or no stream is. `columns`: a list of
   [name, type]. #}
{% macro nothing(columns) -%}
select {% for name, type in columns %}cast(null as {{ type }}) as `{{ name }}`{{ ', ' if not loop.last }}{% endfor %}
where false
{%- endmacro %}
