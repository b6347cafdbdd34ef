select
    `stream`,
    `path`,
    `status`,
    `bytes`,
    `modified`,
    `rows`,
    `since`,
    `since_bytes`,
    `first_arrival`,
    `last_arrival`,
    `interval`
from {{ source('warehouse', 'source_files') }}
