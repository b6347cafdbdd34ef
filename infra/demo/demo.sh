#!/usr/bin/env bash
# The demo: two weeks of flights with the storm of February 2013 through `tidegate run`, the storm's last interval
# through a real Airflow.
# Usage: demo.sh FROM STORM AIRFLOW_FROM TO   (UTC; the make target sets the environment)
set -euo pipefail
from=$1 storm=$2 airflow_from=$3 to=$4
pipeline=dags/pipelines/flights
bin=.venv/bin
# Small applications leave a core idle while they start: two at once.
export TIDEGATE_SPARK_SLOTS=${TIDEGATE_SPARK_SLOTS:-2}
began=$SECONDS

say() { printf '\n\033[1m[%d:%02d] %s\033[0m\n' $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60)) "$*"; }

say "1/4 Landing the flights of $from to $to, one file per stream and hour, as an airline's feed would"
$bin/python -m tidegate.examples.land_flights --landing "$TIDEGATE_LANDING" --from "$from" --to "$to"

say "2/4 tidegate run: every interval up to $airflow_from, all stages: twelve days teach it, then comes the storm"
$bin/tidegate run $pipeline --warehouse "$TIDEGATE_WAREHOUSE" --from "$from" --to "$airflow_from"

say "3/4 Airflow: the interval of $airflow_from, through a real scheduler"
was_running=$($bin/python infra/airflow/stack.py status >/dev/null 2>&1 && echo yes || echo no)
if [ "$was_running" = no ]; then
  trap '$bin/python infra/airflow/stack.py down' EXIT
fi
$bin/python infra/airflow/stack.py up
$bin/python infra/airflow/stack.py backfill --dag flights --from "$airflow_from" --to "$to"

say "4/4 What came out"
$bin/python -m infra.demo.account $pipeline --warehouse "$TIDEGATE_WAREHOUSE" --from "$from" --to "$to" \
  --check-from "$storm"
if [ "$was_running" = no ]; then
  trap - EXIT
  $bin/python infra/airflow/stack.py down
  echo "Airflow is stopped; make up starts it again, with these runs in its grid."
fi
say "Done"
