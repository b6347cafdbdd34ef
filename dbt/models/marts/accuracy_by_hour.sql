with windows as (
    select
        query,
        metric,
        {{ hour_of('window_end') }} as hour,
        value,
        promised,
        kept,
        slack_s,
        `interval`
    from {{ ref('stg_accuracy') }}
),

hours as (
    select
        query,
        metric,
        hour,
        count(*) as windows,
        count_if(kept) as windows_kept,
        {{ share('count_if(kept)', 'count(kept)') }} as share_kept,
        {{ ordered_mean('value') }} as mean_value,
        min(value) as least_value,
        max(value) as greatest_value,
        max(promised) as promised,
        {{ ordered_mean('slack_s') }} as mean_slack_s,
        `interval`
    from windows
    group by query, metric, hour, `interval`
)

select
    query,
    metric,
    hour,
    windows,
    windows_kept,
    share_kept,
    mean_value,
    least_value,
    greatest_value,
    promised,
    mean_slack_s,
    `interval`
from hours
