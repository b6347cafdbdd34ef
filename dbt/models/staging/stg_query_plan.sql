select
    `query`,
    `effective_from`,
    `support_level`,
    `tolerable_s`,
    `slot_end`,
    `period_s`,
    `extra_answer`,
    `interval`
from {{ source('warehouse', 'query_plan') }}
