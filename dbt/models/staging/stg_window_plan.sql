select
    `stream`,
    `effective_from`,
    `support_level`,
    `width_s`,
    `min_width_s`,
    `max_width_s`,
    `byte_rate`,
    `planned_bytes`,
    `group_id`,
    `slot_offset_s`,
    `slot_s`,
    `period_s`,
    `trigger`,
    `interval`
from {{ source('warehouse', 'window_plan') }}
