select
    `app`,
    `query`,
    `started_at`,
    `seconds`,
    `rows_in`,
    `rows_out`,
    `rows_late`,
    `rows_quarantined`,
    `rows_failed`,
    `rows_landed_late`,
    `peak_state_bytes`,
    `memory_budget_bytes`,
    `peak_process_bytes`,
    `process_budget_bytes`,
    coalesce(`kind`, 'client') as `kind`,
    `interval`
from {{ source('warehouse', 'run_metrics') }}
