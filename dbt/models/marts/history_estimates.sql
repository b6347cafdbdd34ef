select
    leaves.stream,
    leaves.leaf_start,
    leaves.column_name,
    leaves.leaf_end,
    leaves.tuples,
    leaves.sampled,
    leaves.fraction,
    leaves.exact_count,
    leaves.exact_total,
    {{ share('leaves.exact_total', 'leaves.exact_count') }} as exact_average,
    leaves.least_value,
    leaves.greatest_value,
    coalesce(samples.sampled_values, 0) as sampled_values,
    samples.estimated_count,
    samples.estimated_total,
    {{ share('samples.estimated_total', 'samples.estimated_count') }} as estimated_average,
    samples.estimated_count_variance,
    samples.estimated_total_variance,
    leaves.`interval`
from {{ ref('int_history_leaf_columns') }} as leaves
left join {{ ref('int_history_sample_columns') }} as samples
    on leaves.stream = samples.stream
    and leaves.leaf_start = samples.leaf_start
    and leaves.column_name = samples.column_name
    and leaves.`interval` = samples.`interval`
