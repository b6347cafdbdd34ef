{# What builds this table is left out: its own account is written after it, and a second run would find the first's. #}
select
    app,
    kind,
    query,
    started_at,
    seconds,
    rows_in,
    rows_out,
    rows_late,
    rows_landed_late,
    rows_quarantined,
    peak_state_bytes,
    memory_budget_bytes,
    {{ share('peak_state_bytes', 'memory_budget_bytes') }} as state_share,
    peak_process_bytes,
    process_budget_bytes,
    {{ share('peak_process_bytes', 'process_budget_bytes') }} as process_share,
    coalesce(peak_state_bytes <= memory_budget_bytes, true)
    and coalesce(peak_process_bytes <= process_budget_bytes, true) as within_budget,
    `interval`
from {{ ref('stg_run_metrics') }}
where app <> 'publish'
