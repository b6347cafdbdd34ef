{# One row per combination of `columns`, none of which is null, but those named in `nullable`. #}
{% test grain(model, columns, nullable=[]) %}
{%- set names = [] -%}
{%- set never_null = [] -%}
{%- for column in columns -%}
    {%- do names.append('`' ~ column ~ '`') -%}
    {%- if column not in nullable -%}{%- do never_null.append('`' ~ column ~ '` is null') -%}{%- endif -%}
{%- endfor %}
select
    {{ names | join(', ') }},
    count(*) as rows_found
from {{ model }}
group by {{ names | join(', ') }}
having count(*) > 1 or {{ never_null | join(' or ') }}
{% endtest %}
