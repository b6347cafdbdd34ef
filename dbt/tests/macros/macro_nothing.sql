{# No rows, the named columns, the given types. #}
{{ config(tags=['macro']) }}
with given as ({{ nothing([['a name', 'bigint'], ['widths', 'map<string,double>']]) }}),

one as (
    select typeof(given.`a name`) as found_name, typeof(given.widths) as found_widths
    from (select 1 as one) left join given
)

select * from one
where found_name <> 'bigint' or found_widths <> 'map<string,double>' or (select count(*) from given) <> 0
