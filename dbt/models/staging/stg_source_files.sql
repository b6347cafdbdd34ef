select
    `stream`,
    `path`,
    `status`,
    `bytes`,
    `modified`,
    `rows`,
    `since`,
    `since_bytes`,
    `interval`
from {{ source('warehouse', 'source_files') }}
