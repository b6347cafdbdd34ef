{# y² (1 − f) / f² by hand; what is kept whole has no variance. #}
{{ config(tags=['macro']) }}
with given (value, fraction) as (
    values (3D, 0.5D), (-1D, 0.25D), (5D, 1D), (cast(null as double), 0.5D)
)

select {{ ht_variance('value', 'fraction') }} as variance
from given
having variance <> 9 * 0.5 / 0.25 + 1 * 0.75 / 0.0625
