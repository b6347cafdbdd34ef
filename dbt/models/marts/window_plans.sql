select
    stream,
    effective_from,
    support_level,
    width_s,
    min_width_s,
    max_width_s,
    {{ share('width_s', 'max_width_s') }} as width_share,
    byte_rate,
    planned_bytes,
    group_id,
    slot_s,
    period_s,
    `trigger`,
    `interval`
from {{ ref('stg_window_plan') }}
