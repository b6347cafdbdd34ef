select
    `query`,
    `window_end`,
    `event_id`,
    `slack_s`,
    `share`,
    `group_key`,
    `has_rows`,
    `interval`
from {{ source('warehouse', 'needed_slack') }}
