"""Airflow's plugins. The distribution's entry points name them, so an Airflow that has Tidegate installed has them."""
