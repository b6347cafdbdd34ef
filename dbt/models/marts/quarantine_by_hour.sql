with refused as (
    select
        stream,
        coalesce({{ hour_of('arrival_time') }}, {{ hour_of(interval_start('`interval`')) }}) as hour,
        reason,
        `column` as column_name,
        record,
        `source`,
        `position`,
        `interval`
    from {{ ref('stg_quarantine') }}
),

counted as (
    select
        stream,
        hour,
        reason,
        column_name,
        count(*) as records,
        count(distinct `source`) as sources,
        min(struct(record, `source`, `position`)) as first_one,
        `interval`
    from refused
    group by stream, hour, reason, column_name, `interval`
)

select
    stream,
    hour,
    reason,
    column_name,
    records,
    first_one.record as example,
    first_one.`source` as example_source,
    first_one.`position` as example_position,
    sources,
    `interval`
from counted
