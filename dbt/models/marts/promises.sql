select
    query,
    promise,
    period_start,
    period_end,
    case when kept then 'kept' when not kept then 'missed' else 'open' end as state,
    windows,
    promised,
    measured,
    kept,
    periods_judged,
    periods_kept,
    met_so_far,
    judged_at,
    `interval`
from {{ ref('stg_promise_periods') }}
