select
    `stream`,
    `path`,
    `status`,
    `bytes`,
    `modified`,
    `rows`,
    `interval`
from {{ source('warehouse', 'source_files') }}
