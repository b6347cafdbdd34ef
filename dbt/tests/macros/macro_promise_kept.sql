{# ACCURACY is about the mean, ERROR about 95 % of the windows; no promise, no verdict. #}
{{ config(tags=['macro']) }}
with cases (metric, mean_value, share_kept, promised, expected) as (
    values
    ('hit_rate', 0.95D, 0D, 0.95D, true),
    ('hit_rate', 0.94999D, 1D, 0.95D, false),
    ('hit_rate', (1D + 0.9D + 0.95D) / 3D, 0D, 0.95D, true),
    ('relative_error', 9D, 0.95D, 0.02D, true),
    ('relative_error', 0D, 0.94D, 0.02D, false),
    ('relative_error', 0D, 1D, cast(null as double), cast(null as boolean))
)

select *, {{ promise_kept('metric', 'mean_value', 'share_kept', 'promised') }} as found
from cases
where not {{ promise_kept('metric', 'mean_value', 'share_kept', 'promised') }} <=> expected
