"""The flights pipeline in Airflow: every hour of the three airports of New York. Declared in pipelines/flights/."""

from tidegate_dags import build_dag

# The data ends with 2013: without an end, unpausing the DAG would start the newest hour of today.
dag = build_dag("flights", end="2014-01-01T00:00:00Z")
