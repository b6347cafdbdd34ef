select
    `query`,
    `promise`,
    `period_start`,
    `period_end`,
    `windows`,
    `promised`,
    `measured`,
    `kept`,
    `periods_judged`,
    `periods_kept`,
    `met_so_far`,
    `judged_at`,
    `interval`
from {{ source('warehouse', 'promise_periods') }}
