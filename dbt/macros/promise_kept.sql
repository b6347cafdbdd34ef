{# Whether a promise held over many windows. ACCURACY (metric hit_rate): the mean is at least the promise. ERROR (metric
   relative_error): at least 95 % of the windows kept it. Null without a promise. Rounded, so that nineteen hits of
   twenty are 0.95. #}
{% macro promise_kept(metric, mean_value, share_kept, promised) -%}
case
    when {{ promised }} is null then null
    when {{ metric }} = 'hit_rate' then round({{ mean_value }}, 9) >= {{ promised }}
    else round({{ share_kept }}, 9) >= 0.95D
end
{%- endmacro %}
