select
    `stream`,
    `tick`,
    `tuples`,
    `rate`,
    `tuple_bytes`,
    `interval`
from {{ source('warehouse', 'stream_rates') }}
