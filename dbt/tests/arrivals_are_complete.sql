{# Every tuple and every refused record of every stream counts in some hour. #}
with expected as (
    select count(*) as records from {{ ref('int_arrivals') }}
    union all
    select count(*) as records from {{ ref('stg_quarantine') }}
)

select (select sum(records) from expected) as expected, coalesce(sum(records), 0) as found
from {{ ref('ingestion_by_hour') }}
having (select sum(records) from expected) <> coalesce(sum(records), 0)
