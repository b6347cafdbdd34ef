{# Nulls count for nothing, of no value there is no mean. #}
{{ config(tags=['macro']) }}
with given (name, value) as (
    values ('of two', 1D), ('of two', 2D), ('of two', cast(null as double)), ('of nothing', cast(null as double))
),

expected (name, expected) as (
    values ('of two', 1.5D), ('of nothing', cast(null as double))
),

found as (
    select name, {{ ordered_mean('value') }} as found from given group by name
)

select * from expected full outer join found using (name)
where not found <=> expected
