select
    `query`,
    `window_end`,
    `metric`,
    `value`,
    `promised`,
    `kept`,
    `slack_s`,
    `width_s`,
    `interval`
from {{ source('warehouse', 'accuracy') }}
