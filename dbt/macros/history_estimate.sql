{# An aggregate over any part of a stream's past, with an interval: a relation of one row, `estimate`, `low`, `high`,
   `sampled_rows`, `effective_rows`. It reads the whole past, whatever intervals the session is about.

       select estimate, low, high
       from {{ history_estimate('departures', 'avg', 'dep_delay', where="origin = 'JFK'", start='2013-01-01', end='2013-07-01') }}

   aggregate: count, sum or avg. column: an SQL expression over the stream's columns (not for count). where: a condition
   over them. start, end: event times, half-open, UTC. confidence: 0.8, 0.9, 0.95, 0.99 or 0.999.

   The estimate is the ratio estimate over the exact number of tuples, the interval Student's t with n_eff - 1 degrees
   of freedom (by its expansion for large ones); below four effective rows there is none, low and high are null, and
   without a sampled row that qualifies there is no estimate. `tidegate history` narrows it further and knows bounds
   for few rows. #}
{% macro history_estimate(stream, aggregate='avg', column='1', where='true', start=none, end=none, confidence=0.95) -%}
{%- set normal = {'0.8': 1.2815516, '0.9': 1.6448536, '0.95': 1.9599640, '0.99': 2.5758293, '0.999': 3.2905267} -%}
{%- if aggregate not in ('count', 'sum', 'avg') -%}
    {{ exceptions.raise_compiler_error("history_estimate: aggregate '" ~ aggregate ~ "' is not count, sum or avg") }}
{%- endif -%}
{%- if confidence | string not in normal -%}
    {{ exceptions.raise_compiler_error("history_estimate: confidence " ~ confidence ~ " is none of " ~ normal.keys() | join(', ')) }}
{%- endif -%}
{%- if stream not in (var('streams') | selectattr('history') | map(attribute='name') | list) -%}
    {{ exceptions.raise_compiler_error("history_estimate: stream '" ~ stream ~ "' keeps no history") }}
{%- endif -%}
{%- set z = normal[confidence | string] -%}
{%- set since = "timestamp '" ~ (start or '0001-01-01') ~ "'" -%}
{%- set until = "timestamp '" ~ (end or '9999-01-01') ~ "'" -%}
(
    with strata as (
        select `interval`, leaf_start, leaf_end, tuples, fraction
        from past.history_leaves
        where stream = '{{ stream }}' and leaf_end > {{ since }} and leaf_start < {{ until }} and fraction > 0
    ),

    sampled as (
        select
            `interval`,
            event_time,
            u,
            cast({{ '1' if aggregate == 'count' else column }} as double) as y,
            coalesce(({{ where }}), false) and event_time >= {{ since }} and event_time < {{ until }} as chosen
        from past.history_samples_{{ stream }}
    ),

    held as (
        select
            strata.fraction as f,
            case when sampled.chosen and sampled.y is not null then 1D else 0D end as q,
            coalesce(case when sampled.chosen then sampled.y end, 0D) as z
        from sampled
        inner join strata
            on sampled.`interval` = strata.`interval`
            and sampled.event_time >= strata.leaf_start
            and sampled.event_time < strata.leaf_end
            and sampled.u < strata.fraction
    ),

    totals as (
        select
            (select cast(sum(tuples) as double) from strata) as n,
            count(*) as sampled_rows,
            sum(1 / f) as w,
            sum(q / f) as wq,
            sum(z / f) as wz,
            sum(q / (f * f)) as wwq
        from held
    ),

    answers as (
        select
            totals.*,
            {% if aggregate == 'count' %}n * {{ share('wq', 'w') }}
            {% elif aggregate == 'sum' %}n * {{ share('wz', 'w') }}
            {% else %}{{ share('wz', 'wq') }}
            {% endif %} as answer
        from totals
    ),

    errors as (
        select
            sqrt(sum(
                power({% if aggregate == 'count' %}q - wq / w
                {%- elif aggregate == 'sum' %}z - wz / w
                {%- else %}z - q * answer
                {%- endif %}, 2) * (1 - f) / (f * f)
            )) * {% if aggregate == 'avg' %}max({{ share('1D', 'wq') }}){% else %}max({{ share('n', 'w') }}){% endif %} as error
        from held
        cross join answers
    ),

    quantiles as (
        select
            answers.*,
            errors.error,
            {{ share('wq * wq', 'wwq') }} as effective_rows,
            {{ share('1D', share('wq * wq', 'wwq') ~ ' - 1') }} as r
        from answers
        cross join errors
    )

    select
        case when wq > 0 then answer end as estimate,
        case when effective_rows >= 4 then answer - error * t end as low,
        case when effective_rows >= 4 then answer + error * t end as high,
        sampled_rows,
        effective_rows
    from (
        select
            quantiles.*,
            {{ z }}D + {{ (z ** 3 + z) / 4 }}D * r + {{ (5 * z ** 5 + 16 * z ** 3 + 3 * z) / 96 }}D * r * r
            + {{ (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / 384 }}D * r * r * r as t
        from quantiles
    )
)
{%- endmacro %}
