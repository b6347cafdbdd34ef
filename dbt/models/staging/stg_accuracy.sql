select
    `query`,
    `window_end`,
    `metric`,
    `value`,
    `promised`,
    `kept`,
    `slack_s`,
    `width_s`,
    `group_key`,
    `interval`
from {{ source('warehouse', 'accuracy') }}
