{# Finds rows in which the condition is false; unknown is no finding. #}
{{ config(tags=['macro']) }}
with given (value) as (values (1), (2), (cast(null as int)))

select count(*) as found from ({{ test_row_holds('given', 'value > 1') }})
having found <> 1
