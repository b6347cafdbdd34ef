with needed as (
    select
        query,
        count(*) as entries,
        round(percentile(slack_s, 0.5), 6) as needed_slack_median_s,
        round(percentile(slack_s, 0.95), 6) as needed_slack_p95_s,
        max(slack_s) as needed_slack_greatest_s,
        `interval`
    from {{ ref('stg_needed_slack') }}
    group by query, `interval`
)

select
    plans.query,
    plans.effective_from,
    plans.slack_s,
    plans.oracle_slack_s,
    plans.slack_s - plans.oracle_slack_s as excess_s,
    plans.accuracy_target,
    plans.accuracy_expected,
    plans.windows,
    plans.method,
    coalesce(needed.entries, 0) as entries,
    needed.needed_slack_median_s,
    needed.needed_slack_p95_s,
    needed.needed_slack_greatest_s,
    plans.`interval`
from {{ ref('stg_slack_plan') }} as plans
left join needed on plans.query = needed.query and plans.`interval` = needed.`interval`
