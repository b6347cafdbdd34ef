select
    `query`,
    `effective_from`,
    `slack_s`,
    `accuracy_target`,
    `accuracy_expected`,
    `oracle_slack_s`,
    `windows`,
    `method`,
    `interval`
from {{ source('warehouse', 'slack_plan') }}
