{# Nulls are written out, names and texts may hold what JSON has to escape. #}
{{ config(tags=['macro']) }}
with given as (
    select 'it\'s "x"' as `the name`, cast(null as double) as level, 3 as `count`
)

select {{ values_json(['the name', 'level', 'count']) }} as found
from given
where {{ values_json(['the name', 'level', 'count']) }} <> '{"the name":"it\'s \\"x\\"","level":null,"count":3}'
