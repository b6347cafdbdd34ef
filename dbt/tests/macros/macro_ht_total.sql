{# A tuple sampled with fraction f stands for 1/f; with the value 1 it is a count; nulls count for nothing. #}
{{ config(tags=['macro']) }}
with given (value, fraction) as (
    values (3D, 0.5D), (-1D, 0.25D), (5D, 1D), (cast(null as double), 0.5D)
)

select {{ ht_total('value', 'fraction') }} as total, {{ ht_total('1D', 'fraction') }} as tuples
from given
having total <> 3 * 2 - 1 * 4 + 5 or tuples <> 2 + 4 + 1 + 2
