{#- With a bound a window is final so much later. -#}
{%- set lags = var('queries', []) | selectattr('lag_s', 'defined') | list -%}
{%- set final_after_s -%}
{%- if lags -%}
case query
{%- for query in lags %} when '{{ query.id }}' then {{ var('horizon_s') + query.lag_s }}{% endfor %}
{{- ' else ' ~ var('horizon_s') ~ ' end' -}}
{%- else -%}
{{ var('horizon_s') }}
{%- endif -%}
{%- endset -%}
{%- set truth_known_at = 'window_end + make_dt_interval(0, 0, 0, ' ~ final_after_s ~ ')' -%}
with truth as (
    select query, window_end, `rank`, values_json, `interval` from {{ ref('int_truth') }}
),

windows_with_rows as (
    select distinct query, window_end from truth
),

judged_windows as (
    select distinct query, window_end, `interval` from {{ ref('stg_accuracy') }}
),

windows_without_rows as (
    select query, window_end, `interval`
    from judged_windows
    left anti join windows_with_rows using (query, window_end)
),

versions as (
    -- An answer that was given when the truth was known says the same.
    select query, window_end, 'answered' as state, emitted_at as known_at, `rank`, values_json, `interval`
    from {{ ref('int_answers') }}
    where emitted_at < {{ truth_known_at }}
    union all
    select query, window_end, 'final', {{ truth_known_at }}, `rank`, values_json, `interval`
    from truth
    union all
    select query, window_end, 'final', {{ truth_known_at }}, cast(null as bigint), cast(null as string), `interval`
    from windows_without_rows
)

select
    query,
    window_end,
    state,
    known_at,
    case
        when values_json is null then cast(0 as bigint)
        else cast(
            row_number() over (
                partition by query, window_end, state, `interval` order by `rank` nulls last, values_json
            ) as bigint
        )
    end as answer_number,
    `rank`,
    values_json,
    `interval`
from versions
