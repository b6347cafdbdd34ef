select
    `query`,
    `window_end`,
    `event_id`,
    `slack_s`,
    `share`,
    `interval`
from {{ source('warehouse', 'needed_slack') }}
