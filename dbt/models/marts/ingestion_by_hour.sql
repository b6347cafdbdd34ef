with accepted as (
    select
        stream,
        {{ hour_of('arrival_time') }} as hour,
        count(*) as tuples,
        count_if(lateness_s > 0) as late,
        percentile(lateness_s, 0.5) as median_lateness_s,
        percentile(lateness_s, 0.95) as p95_lateness_s,
        max(lateness_s) as greatest_lateness_s,
        `interval`
    from {{ ref('int_arrivals') }}
    group by stream, {{ hour_of('arrival_time') }}, `interval`
),

refused as (
    select
        stream,
        hour,
        sum(records) as records,
        `interval`
    from {{ ref('quarantine_by_hour') }}
    group by stream, hour, `interval`
)

select
    stream,
    hour,
    coalesce(accepted.tuples, 0) + coalesce(refused.records, 0) as records,
    coalesce(accepted.tuples, 0) as accepted,
    coalesce(refused.records, 0) as refused,
    {{ share('coalesce(refused.records, 0)', 'coalesce(accepted.tuples, 0) + coalesce(refused.records, 0)') }}
        as share_refused,
    coalesce(accepted.late, 0) as late,
    accepted.median_lateness_s,
    accepted.p95_lateness_s,
    accepted.greatest_lateness_s,
    `interval`
from accepted
full outer join refused using (stream, hour, `interval`)
