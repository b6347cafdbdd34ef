{# An hour begins with its first instant and ends before the next hour's; before 1970 too. #}
{{ config(tags=['macro']) }}
with cases (instant, expected) as (
    values
    (timestamp '2013-02-08 10:00:00', timestamp '2013-02-08 10:00:00'),
    (timestamp '2013-02-08 10:59:59.999999', timestamp '2013-02-08 10:00:00'),
    (timestamp '1969-12-31 23:30:00', timestamp '1969-12-31 23:00:00'),
    (cast(null as timestamp), cast(null as timestamp))
)

select *, {{ hour_of('instant') }} as found
from cases
where not {{ hour_of('instant') }} <=> expected
