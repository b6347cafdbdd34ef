select
    query,
    window_end,
    state,
    known_at,
    answer_number,
    `rank`,
    values_json,
    `interval`
from (
    select
        *,
        max(known_at) over (partition by query, window_end) as newest_known_at
    from {{ ref('answer_versions') }}
)
where known_at = newest_known_at
