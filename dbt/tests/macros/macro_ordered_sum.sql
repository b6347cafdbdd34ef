{# The order of the rows does not matter to the last bit; of no value there is no sum. #}
{{ config(tags=['macro']) }}
with given (name, value) as (
    values ('large first', 3D), ('large first', 2e-16D), ('large first', 2e-16D),
    ('large last', 2e-16D), ('large last', 2e-16D), ('large last', 3D),
    ('with a null', 1D), ('with a null', cast(null as double)),
    ('of nothing', cast(null as double))
),

expected (name, expected) as (
    values ('large first', 3.0000000000000004D), ('large last', 3.0000000000000004D),
    ('with a null', 1D), ('of nothing', cast(null as double))
),

found as (
    select name, {{ ordered_sum('value') }} as found from given group by name
)

select * from expected full outer join found using (name)
where not found <=> expected
