{# Labels of whole hours, and those with minutes and seconds. #}
{{ config(tags=['macro']) }}
with cases (label, expected) as (
    values
    ('2013-02-08T10', timestamp '2013-02-08 10:00:00'),
    ('2013-02-08T1015', timestamp '2013-02-08 10:15:00'),
    ('2013-02-08T101530', timestamp '2013-02-08 10:15:30')
)

select *, {{ interval_start('label') }} as found
from cases
where not {{ interval_start('label') }} <=> expected
