{# Answers of later instants and other queries are unknown; a window answered anew shows its newest rows, all of them. #}
{{ config(tags=['macro']) }}
with given (query, window_end, emitted_at, value) as (
    values
    ('a', timestamp '2013-02-08 10:00:00', timestamp '2013-02-08 10:10:00', 'first'),
    ('a', timestamp '2013-02-08 10:00:00', timestamp '2013-02-08 10:30:00', 'again 1'),
    ('a', timestamp '2013-02-08 10:00:00', timestamp '2013-02-08 10:30:00', 'again 2'),
    ('a', timestamp '2013-02-08 10:00:00', timestamp '2013-02-08 11:30:00', 'too late'),
    ('a', timestamp '2013-02-08 10:20:00', timestamp '2013-02-08 11:00:00', 'just in time'),
    ('a', timestamp '2013-02-08 10:40:00', timestamp '2013-02-08 11:00:01', 'unknown'),
    ('b', timestamp '2013-02-08 10:00:00', timestamp '2013-02-08 10:50:00', 'of another query')
),

found as (
    select query, window_end, emitted_at, value
    from ({{ answers_as_of('a', "timestamp '2013-02-08 11:00:00'", 'given') }})
),

expected as (
    select * from given where value in ('again 1', 'again 2', 'just in time')
)

(select * from found except all select * from expected)
union all
(select * from expected except all select * from found)
