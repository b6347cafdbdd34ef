select
    `query`,
    `window_end`,
    `event_id`,
    `slack_s`,
    `interval`
from {{ source('warehouse', 'needed_slack') }}
