{# Microseconds count, earlier is negative, unknown stays unknown. #}
{{ config(tags=['macro']) }}
with cases (first, second, expected) as (
    values
    (timestamp '2013-02-08 10:00:00', timestamp '2013-02-08 10:00:01.5', 1.5D),
    (timestamp '2013-02-08 10:00:00', timestamp '2013-02-08 09:59:59.999999', -0.000001D),
    (timestamp '2013-02-08 10:00:00', cast(null as timestamp), cast(null as double))
)

select *, {{ seconds_between('first', 'second') }} as found
from cases
where not {{ seconds_between('first', 'second') }} <=> expected
