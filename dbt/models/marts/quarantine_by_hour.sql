with refused as (
    select
        stream,
        coalesce({{ hour_of('arrival_time') }}, {{ hour_of(interval_start('`interval`')) }}) as hour,
        reason,
        `column` as column_name,
        record,
        `interval`
    from {{ ref('stg_quarantine') }}
)

select
    stream,
    hour,
    reason,
    column_name,
    count(*) as records,
    min(record) as example,
    `interval`
from refused
group by stream, hour, reason, column_name, `interval`
