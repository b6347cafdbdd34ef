select
    `stream`,
    `arrival_time`,
    `reason`,
    `column`,
    `record`,
    `interval`
from {{ source('warehouse', 'quarantine') }}
