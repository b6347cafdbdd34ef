select
    `stream`,
    `column`,
    `records`,
    `first_seen`,
    `interval`
from {{ source('warehouse', 'unknown_columns') }}
