select
    `stream`,
    `tick`,
    `tuples`,
    `rate`,
    `tuple_bytes`,
    `held_tuples`,
    `held_bytes`,
    `evicted_early`,
    `interval`
from {{ source('warehouse', 'stream_rates') }}
