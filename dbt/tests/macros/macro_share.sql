{# A share of nothing is unknown, not an error and not zero; whole numbers divide as doubles. #}
{{ config(tags=['macro']) }}
with cases (numerator, denominator, expected) as (
    values
    (1, 4, 0.25D),
    (0, 3, 0D),
    (1, 0, cast(null as double)),
    (0, 0, cast(null as double)),
    (cast(null as int), 2, cast(null as double))
)

select *, {{ share('numerator', 'denominator') }} as found
from cases
where not {{ share('numerator', 'denominator') }} <=> expected
