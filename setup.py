"""The packages of the wheel; everything else about it is in pyproject.toml.

``find_packages`` does not find the dbt project, which is data: an ``__init__.py`` in ``dbt/`` would hide dbt itself.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages("spark_apps"),
        *find_packages("dags", include=["tidegate_dags*"]),
        *find_packages(".", include=["expectations*"]),
        "tidegate_dbt",
    ]
)
