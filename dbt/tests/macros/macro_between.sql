{# Finds what is outside, on both sides or one; the bounds are inside, and so is null. #}
{{ config(tags=['macro']) }}
with given (value) as (values (-0.1D), (0D), (1D), (1.1D), (cast(null as double))),

found as (
    select 'both' as bounds, count(*) as found from ({{ test_between('given', 'value', 0, 1) }})
    union all
    select 'least' as bounds, count(*) as found from ({{ test_between('given', 'value', least=1) }})
    union all
    select 'most' as bounds, count(*) as found from ({{ test_between('given', 'value', most=-0.1) }})
)

select * from found
where found <> case bounds when 'both' then 2 when 'least' then 2 else 3 end
