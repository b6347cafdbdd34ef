select
    query,
    alias,
    {{ hour_of('emitted_at') }} as hour,
    max(stream) as stream,
    max(range_s) as range_s,
    count(*) as windows,
    count_if(width_s >= range_s) as windows_whole,
    min(width_s) as least_width_s,
    {{ ordered_mean('width_s') }} as mean_width_s,
    max(width_s) as greatest_width_s,
    {{ ordered_mean('coverage') }} as mean_coverage,
    count_if(support_level = 'A') as windows_at_level_a,
    count_if(support_level = 'B') as windows_at_level_b,
    count_if(support_level = 'C') as windows_at_level_c,
    count_if(support_level = 'infeasible') as windows_infeasible,
    `interval`
from {{ ref('int_answer_widths') }}
group by query, alias, {{ hour_of('emitted_at') }}, `interval`
