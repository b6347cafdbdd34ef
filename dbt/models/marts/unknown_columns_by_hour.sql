with looked_at as (
    select
        stream,
        true as accepted,
        `interval`
    from {{ ref('int_arrivals') }}
    union all
    select
        stream,
        false as accepted,
        `interval`
    from {{ ref('stg_quarantine') }}
    where reason = 'duplicate_id'
),

counted as (
    select
        stream,
        count_if(accepted) as accepted,
        count_if(not accepted) as duplicates,
        `interval`
    from looked_at
    group by stream, `interval`
)

select
    stream,
    unknown.`column` as column_name,
    unknown.records,
    coalesce(counted.accepted, 0) as accepted,
    {{ share('unknown.records', 'counted.accepted + counted.duplicates') }} as share_of_accepted,
    unknown.first_seen,
    coalesce(counted.duplicates, 0) as duplicates,
    `interval`
from {{ ref('stg_unknown_columns') }} as unknown
left join counted using (stream, `interval`)
