with accepted as (
    select
        stream,
        count(*) as tuples,
        `interval`
    from {{ ref('int_arrivals') }}
    group by stream, `interval`
)

select
    stream,
    unknown.`column` as column_name,
    unknown.records,
    coalesce(accepted.tuples, 0) as accepted,
    {{ share('unknown.records', 'accepted.tuples') }} as share_of_accepted,
    unknown.first_seen,
    `interval`
from {{ ref('stg_unknown_columns') }} as unknown
left join accepted using (stream, `interval`)
