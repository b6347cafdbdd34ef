select
    cast(
        row_number() over (
            partition by `interval`
            order by
                case severity when 'critical' then 1 when 'warning' then 2 else 3 end,
                `table`, expectation, query, window_end, detail
        ) as bigint
    ) as finding,
    severity,
    `table` as table_name,
    expectation,
    query,
    window_end,
    promised,
    measured,
    detail,
    `interval`
from {{ ref('stg_quality_results') }}
where not success
