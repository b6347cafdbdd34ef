{# The condition is true or unknown in every row. #}
{% test row_holds(model, condition) %}
select *
from {{ model }}
where not ({{ condition }})
{% endtest %}
