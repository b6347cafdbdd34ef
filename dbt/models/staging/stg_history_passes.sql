select
    `stream`,
    `pass_time`,
    `tuples_before`,
    `leaf_start`,
    `leaf_end`,
    `fraction`,
    `interval`
from {{ source('warehouse', 'history_passes') }}
