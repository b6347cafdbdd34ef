select
    `query`,
    `stream`,
    `effective_from`,
    `tolerated_error`,
    `slack_width_s`,
    `coverage`,
    `interval`
from {{ source('warehouse', 'error_width_plan') }}
