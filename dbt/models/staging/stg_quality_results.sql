select
    `table`,
    `expectation`,
    `query`,
    `severity`,
    `success`,
    `promised`,
    `measured`,
    `detail`,
    `window_end`,
    `interval`
from {{ source('warehouse', 'quality_results') }}
