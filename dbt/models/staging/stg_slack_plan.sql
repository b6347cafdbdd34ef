select
    `query`,
    `effective_from`,
    `slack_s`,
    `accuracy_target`,
    `accuracy_expected`,
    `oracle_slack_s`,
    `windows`,
    `method`,
    `slack_needed_s`,
    `bytes_needed`,
    `accuracy_by_share`,
    `accuracy_by_wait`,
    `interval`
from {{ source('warehouse', 'slack_plan') }}
