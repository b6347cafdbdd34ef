"""Runs a stage where Spark is: how, is a seam of ``build_dag(submit=…)``, and by default the Airflow connection's word.

``by_connection``, the default, reads the connection ``spark_default``:

* a Spark Connect server (type ``spark_connect``, or a host ``sc://…``): the stage is a Python process on this machine,
  the server's client, with a session of its own;
* a cluster (``spark://``, ``yarn``, ``k8s://``): it is an application of its own, by spark-submit;
* ``local[2]``: a Python process that starts a Spark of its own;
* no such connection, nor ``TIDEGATE_SPARK_MASTER``: a Python process that starts one if it has work enough for it.

``submitters`` has others, for Databricks, EMR Serverless and Kubernetes.

Not by Airflow's own provider for Spark: that depends on ``pyspark-client``, whose files overwrite those of ``pyspark``
(infra/decisions/0012-one-wheel.md). The connections are the same, so a deployment that has one needs no other.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from tidegate_dags.object_store import keys
from tidegate_dags.places import installed

# No other program may be named by whoever may edit a connection.
BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_CONNECT = "spark_connect"
_OPTIONS = {
    "deploy-mode": "--deploy-mode",
    "queue": "--queue",
    "principal": "--principal",
    "namespace": "spark.kubernetes.namespace",
}
_UNDERSTOOD = {*_OPTIONS, "spark-binary"}
_LOOPBACK = ("127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Application:
    """A stage of a pipeline, as something that can be submitted: what an operator has to be made of.

    ``pipeline``: its name. ``folder``: where its declaration is on this machine. ``options``: the command line after
    that folder; with Airflow's templates for the interval, so it has to go into one of the operator's template fields.
    ``conf``: settings of Spark. ``objects``: whether it reads or writes an object store. ``task``: arguments that every
    operator takes, ``task_id`` among them.
    """

    pipeline: str
    stage: str
    folder: Path
    options: tuple[str, ...]
    conf: Mapping[str, str]
    objects: bool
    task: Mapping[str, Any]

    @property
    def file(self) -> Path:
        """The program, on this machine: it takes the folder and the options."""
        return installed("tidegate") / "stages" / f"{self.stage}.py"


Submit: TypeAlias = Callable[[Application], BaseOperator]


def by_connection(conn_id: str = "spark_default") -> Submit:
    """Where the connection says. ``conn_id``: another connection's name."""

    def submit(application: Application) -> BaseOperator:
        return SparkSubmission(
            application=str(application.file),
            application_args=[str(application.folder), *application.options],
            conf=application.conf,
            conn_id=conn_id,
            objects=application.objects,
            **application.task,
        )

    return submit


@dataclass(frozen=True)
class Spark:
    """The Spark that a connection names: ``master`` (empty: none is named), and what else it says.

    ``secrets``: variables for the environment of the process, which no page and no process list shows.
    """

    master: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_submitted(self) -> bool:
        """Whether the application has to be submitted to it; otherwise it is a process here."""
        return bool(self.master) and not self.master.startswith(("local", "sc://"))


class SparkSubmission(BaseOperator):
    """A stage as a task: a process of its own, which ends with the task, and with it what it started.

    With ``objects``, it reads or writes an object store, and has the keys of ``aws_default`` in its environment. Of
    the connection's extras ``deploy-mode``, ``queue``, ``namespace``, ``principal`` and ``spark-binary`` are
    understood; of a Spark Connect server's ``use_ssl``, and its login (user) and password (token).
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
        spark = self._connection()
        found = {**environment(spark.master), **spark.secrets}
        if not spark.is_submitted and not spark.master.startswith("sc://"):
            found["PYSPARK_SUBMIT_ARGS"] = shlex.join([*_settings(self.conf), "pyspark-shell"])
        return {**os.environ, **found, **(keys() if self.objects else {})}

    def on_kill(self) -> None:
        """End the driver, and with it what it started."""
        if self._process is not None:
            self._process.send_sigterm()  # type: ignore[no-untyped-call]

    def command(self) -> list[str]:
        """The command line: the application and its arguments, to Python or, with where to run and settings, Spark."""
        spark = self._connection()
        binary = spark.extra.get("spark-binary", BINARIES[0])
        if binary not in BINARIES:
            raise AirflowFailException(
                f"Connection {self.conn_id}: spark-binary is {binary!r}; expected one of {', '.join(BINARIES)}."
            )
        if not spark.is_submitted:
            return [_python(), self.application, *self.application_args]
        conf, options = dict(self.conf), ["--name", f"{self.dag_id}.{self.task_id}"]
        for key, option in _OPTIONS.items():
            if not spark.extra.get(key):
                continue
            if option.startswith("--"):
                options += [option, str(spark.extra[key])]
            else:
                conf.setdefault(option, str(spark.extra[key]))
        if spark.master.startswith("spark://") and spark.extra.get("deploy-mode") == "cluster":
            # Otherwise it returns as soon as the cluster has accepted the driver.
            conf.setdefault("spark.standalone.submit.waitAppCompletion", "true")
        return [_beside_python(binary), "--master", spark.master, *_settings(conf), *options, self.application,
                *self.application_args]  # fmt: skip

    def _connection(self) -> Spark:
        try:
            connection = BaseHook.get_connection(self.conn_id)
        except AirflowNotFoundException:
            return Spark(os.environ.get("TIDEGATE_SPARK_MASTER", ""))
        extra: dict[str, Any] = connection.extra_dejson
        host = connection.host or ""
        connects = connection.conn_type in (_CONNECT, "sc") or host.startswith("sc://")
        if unknown := sorted(extra.keys() - ({"use_ssl"} if connects else _UNDERSTOOD)):
            self.log.warning("Connection %s: not used here, and ignored: %s", self.conn_id, ", ".join(unknown))
        if connects:
            return _connect_server(connection, extra)
        # Written as a URI, the scheme of the master (spark://, k8s://) is the connection's type.
        whole = connection.conn_type == "spark" and ("://" in host or not connection.port)
        master = host if whole else f"{connection.conn_type}://{host}"
        return Spark((f"{master}:{connection.port}" if connection.port else master) or "local[2]", extra)


def _connect_server(connection: Any, extra: Mapping[str, Any]) -> Spark:
    """The server that a connection names as Airflow's own type ``spark_connect`` does."""
    host = (connection.host or "localhost").removeprefix("sc://").rstrip("/")
    secure = str(extra.get("use_ssl", "")).lower() == "true"
    if connection.password and not secure and host.partition(":")[0] in _LOOPBACK:
        # By this name alone Spark's client sends a token without TLS.
        host = host.replace("127.0.0.1", "localhost").replace("[::1]", "localhost")
    parameters = {"user_id": connection.login, "use_ssl": "true" if secure else None}
    words = ";".join(f"{name}={quote(value)}" for name, value in parameters.items() if value)
    address = f"sc://{host}" + (f":{connection.port}" if connection.port else "")
    secrets = {TOKEN: connection.password} if connection.password else {}
    return Spark(f"{address}/;{words}" if words else address, extra, secrets)


def environment(master: str) -> dict[str, str]:
    """What a stage's process has to find and this process's environment does not name.

    The master; on one machine workers that run this Python, an address that no other machine reaches, and the settings
    of the package, unless it has a Spark of its own. A cluster's workers have a Python of their own.
    """
    python = _python()
    found = {"PYSPARK_DRIVER_PYTHON": python, **({"TIDEGATE_SPARK_MASTER": master} if master else {})}
    if not master or master.startswith("local"):
        found |= {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        if not {"SPARK_CONF_DIR", "SPARK_HOME"} & os.environ.keys():
            found["SPARK_CONF_DIR"] = str(installed("tidegate") / "engine" / "spark_conf")
    return {name: value for name, value in found.items() if name not in os.environ or name == "TIDEGATE_SPARK_MASTER"}


def _python() -> str:
    """The interpreter that has Tidegate."""
    return os.environ.get("TIDEGATE_PYTHON") or sys.executable


def _settings(conf: Mapping[str, str]) -> list[str]:
    return [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]


def _beside_python(binary: str) -> str:
    """The program that belongs to the Python that has Tidegate; elsewhere it is left to PATH."""
    beside = Path(_python()).parent / binary
    return str(beside) if beside.is_file() else binary
