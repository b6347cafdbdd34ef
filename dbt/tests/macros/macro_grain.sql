{# Finds rows that share a key, and keys with nulls where they are not allowed. #}
{{ config(tags=['macro']) }}
with given (a, b) as (values (1, 1), (1, 2), (2, 1), (2, 1), (3, cast(null as int)), (cast(null as int), 1)),

found as (
    select 'strict' as test, count(*) as found from ({{ test_grain('given', ['a', 'b']) }})
    union all
    select 'b may be null' as test, count(*) as found from ({{ test_grain('given', ['a', 'b'], ['b']) }})
)

select * from found
where found <> case test when 'strict' then 3 else 2 end
