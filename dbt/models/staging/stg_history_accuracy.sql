select
    `stream`,
    `part_start`,
    `part_end`,
    `question`,
    `tuples`,
    `fraction`,
    `truth`,
    `estimate`,
    `low`,
    `high`,
    `exact`,
    `holds`,
    `interval`
from {{ source('warehouse', 'history_accuracy') }}
