select
    `stream`,
    `arrival_time`,
    `reason`,
    `column`,
    `record`,
    `source`,
    `position`,
    `interval`
from {{ source('warehouse', 'quarantine') }}
