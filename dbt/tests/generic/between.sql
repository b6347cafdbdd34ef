{# No value below `least` or above `most`; null passes (not_null says otherwise where it matters). #}
{% test between(model, column_name, least=none, most=none) %}
select `{{ column_name }}`
from {{ model }}
where
    {% if least is not none %}`{{ column_name }}` < {{ least }}{% endif %}
    {{ 'or' if least is not none and most is not none }}
    {% if most is not none %}`{{ column_name }}` > {{ most }}{% endif %}
{% endtest %}
