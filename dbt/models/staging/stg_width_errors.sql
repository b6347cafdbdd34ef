select
    `query`,
    `window_end`,
    `share`,
    `error`,
    `interval`
from {{ source('warehouse', 'width_errors') }}
