select
    query,
    window_end,
    cast(
        row_number() over (partition by query, window_end, `interval` order by `rank` nulls last, values_json) as bigint
    ) as answer_number,
    emitted_at,
    `rank`,
    values_json,
    width_s,
    coverage,
    support_level,
    slack_s,
    accuracy_expected,
    `interval`
from {{ ref('int_answers') }}
