"""``python -m tests.attacks.dag_bag FOLDER``: the DAGs as Airflow loads them, as JSON, in a process of its own."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Print the import errors, and each query's kind and promise as the DAG has them."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization
    from tidegate_dags.declaration import read_declaration

    bag = DagBag(dag_folder=str(folder), safe_mode=False)
    errors, queries = dict(bag.import_errors), {}
    for name, dag in bag.dags.items():
        try:
            json.dumps(DagSerialization.to_dict(dag)).encode()
        except Exception as error:
            errors[name] = f"not serialized: {error!r}"
        declared = read_declaration(folder / "pipelines" / name).queries
        queries[name] = {q.id: [q.kind, share(q.promise)] for q in declared}
    print(json.dumps({"errors": errors, "queries": queries}))


def share(promise: str) -> float | None:
    """``ERROR 10 %`` → 0.1."""
    return float(re.findall(r"[\d.]+", promise)[0]) / 100 if promise else None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
