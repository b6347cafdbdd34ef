{# The answers of a query as they were known at an instant: those given by then, of each window the newest. `query`: its
   id as text; `instant`: an SQL expression, like "timestamp '2013-02-08 12:00:00'"; `answers`: another relation with
   the mart's columns query, window_end and emitted_at. Answers are a function of what had arrived when they were given,
   so running an interval again does not change what was known. #}
{% macro answers_as_of(query, instant, answers=none) -%}
select * except (newest_emission)
from (
    select
        *,
        max(emitted_at) over (partition by window_end) as newest_emission
    from {{ answers or ref('answers') }}
    where query = '{{ query }}' and emitted_at <= {{ instant }}
)
where emitted_at = newest_emission
{%- endmacro %}
