"""Runs a stage's application where the Airflow connection of Spark says: through spark-submit, or on this machine.

On this machine it is a Python process, which starts Spark when it has work enough for it: a JVM takes longer to start
than an interval of little data takes to answer.

Not by Airflow's own provider for Spark: that depends on ``pyspark-client``, whose files overwrite those of ``pyspark``
(infra/decisions/0012-one-wheel.md). The connection is the same, so a deployment that has one needs no other.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from tidegate_dags.object_store import keys
from tidegate_dags.places import installed

# No other program may be named by whoever may edit a connection.
BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")
_OPTIONS = {
    "deploy-mode": "--deploy-mode",
    "queue": "--queue",
    "principal": "--principal",
    "namespace": "spark.kubernetes.namespace",
}
_UNDERSTOOD = {*_OPTIONS, "spark-binary"}


class SparkSubmission(BaseOperator):
    """A Spark application as a task: a process of its own, which ends with the task, and so does its JVM.

    The connection's host is Spark's master; without the connection it is ``TIDEGATE_SPARK_MASTER``, else ``local[2]``.
    With ``objects``, it reads or writes an object store, and has the keys of ``aws_default`` in its environment. Of
    the connection's extras ``deploy-mode``, ``queue``, ``namespace``, ``principal`` and ``spark-binary`` are
    understood.
    """

    template_fields: Sequence[str] = ("application_args", "conf")

    def __init__(
        self,
        *,
        application: str,
        application_args: Sequence[str],
        conf: Mapping[str, str],
        conn_id: str = "spark_default",
        objects: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = application
        self.application_args = list(application_args)
        self.conf = dict(conf)
        self.conn_id = conn_id
        self.objects = objects
        self._process: SubprocessHook | None = None

    def execute(self, context: Any) -> None:
        """Run it; what it says goes to the task's log."""
        self._process = SubprocessHook()
        ended = self._process.run_command(self.command(), env=self._environment())
        if ended.exit_code:
            raise AirflowException(f"{self.task_id} ended with status {ended.exit_code}; the log above says why.")

    def _environment(self) -> dict[str, str]:
        master, _ = self._connection()
        found = environment(master)
        if _here(master):
            found["PYSPARK_SUBMIT_ARGS"] = shlex.join([*_settings(self.conf), "pyspark-shell"])
        return {**os.environ, **found, **(keys() if self.objects else {})}

    def on_kill(self) -> None:
        """End the driver, and with it what it started."""
        if self._process is not None:
            self._process.send_sigterm()  # type: ignore[no-untyped-call]

    def command(self) -> list[str]:
        """The command line: the application and its arguments, to Python or, with where to run and settings, Spark."""
        master, extra = self._connection()
        binary = extra.get("spark-binary", BINARIES[0])
        if binary not in BINARIES:
            raise AirflowFailException(
                f"Connection {self.conn_id}: spark-binary is {binary!r}; expected one of {', '.join(BINARIES)}."
            )
        if _here(master):
            return [_python(), self.application, *self.application_args]
        conf, options = dict(self.conf), ["--name", f"{self.dag_id}.{self.task_id}"]
        for key, option in _OPTIONS.items():
            if not extra.get(key):
                continue
            if option.startswith("--"):
                options += [option, str(extra[key])]
            else:
                conf.setdefault(option, str(extra[key]))
        if master.startswith("spark://") and extra.get("deploy-mode") == "cluster":
            # Otherwise it returns as soon as the cluster has accepted the driver.
            conf.setdefault("spark.standalone.submit.waitAppCompletion", "true")
        return [_beside_python(binary), "--master", master, *_settings(conf), *options, self.application,
                *self.application_args]  # fmt: skip

    def _connection(self) -> tuple[str, dict[str, Any]]:
        try:
            connection = BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException:
            return os.environ.get("TIDEGATE_SPARK_MASTER", "local[2]"), {}
        extra: dict[str, Any] = connection.extra_dejson
        if unknown := sorted(extra.keys() - _UNDERSTOOD):
            self.log.warning("Connection %s: not used here, and ignored: %s", self.conn_id, ", ".join(unknown))
        host = connection.host or ""
        # Written as a URI, the scheme of the master (spark://, k8s://) is the connection's type.
        whole = connection.conn_type == "spark" and ("://" in host or not connection.port)
        master = host if whole else f"{connection.conn_type}://{host}"
        return (f"{master}:{connection.port}" if connection.port else master) or "local[2]", extra


def environment(master: str) -> dict[str, str]:
    """What a Spark application has to find and this process's environment does not name.

    The master; on one machine workers that run this Python, an address that no other machine reaches, and the settings
    of the package, unless it has a Spark of its own. A cluster's workers have a Python of their own.
    """
    python = _python()
    found = {"PYSPARK_DRIVER_PYTHON": python, "TIDEGATE_SPARK_MASTER": master}
    if _here(master):
        found |= {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        if not {"SPARK_CONF_DIR", "SPARK_HOME"} & os.environ.keys():
            found["SPARK_CONF_DIR"] = str(installed("tidegate") / "engine" / "spark_conf")
    return {name: value for name, value in found.items() if name not in os.environ}


def _here(master: str) -> bool:
    return master.startswith("local")


def _python() -> str:
    """The interpreter that has Tidegate."""
    return os.environ.get("TIDEGATE_PYTHON") or sys.executable


def _settings(conf: Mapping[str, str]) -> list[str]:
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


def _beside_python(binary: str) -> str:
    """The program that belongs to the Python that has Tidegate; elsewhere it is left to PATH."""
    beside = Path(_python()).parent / binary
    return str(beside) if beside.is_file() else binary
