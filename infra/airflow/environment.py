"""The environment in which Airflow and Spark run on one machine: every setting, in one place, with its reason.

``spark_environment`` is what any Spark application of Tidegate likes to find; ``airflow_environment`` adds Airflow.
Nothing here is needed on a cluster, where a deployment sets its own.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tidegate.engine.session import SPARK_CONF

PROJECT = Path(__file__).resolve().parents[2]
# Spark's classes as this environment has them, and the empty configuration folder that goes with them: see
# infra/spark/class_archive.py.
CLASS_ARCHIVE = Path(sys.prefix) / "spark_classes" / "archive.jsa"
NO_CONFIGURATION = CLASS_ARCHIVE.parent / "no_conf"


@dataclass(frozen=True)
class Places:
    """Where things are: the DAGs, and what they make while they run."""

    dags: Path
    state: Path
    warehouse: Path
    landing: Path

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME: database, logs, password."""
        return self.state / "airflow"


def places() -> Places:
    """The project's, or those named by TIDEGATE_DAGS, TIDEGATE_STATE, TIDEGATE_WAREHOUSE and TIDEGATE_LANDING."""
    state = Path(os.environ.get("TIDEGATE_STATE") or PROJECT / ".tidegate").resolve()
    return Places(
        dags=Path(os.environ.get("TIDEGATE_DAGS") or PROJECT / "dags").resolve(),
        state=state,
        warehouse=Path(os.environ.get("TIDEGATE_WAREHOUSE") or state / "warehouse").resolve(),
        landing=Path(os.environ.get("TIDEGATE_LANDING") or state / "landing").resolve(),
    )


def java_options() -> str:
    """Options of each driver's JVM: those of spark-defaults.conf, and the first compiler only.

    Small intervals end before the second compiler pays off. For heavy ones set TIDEGATE_JAVA_OPTIONS="".
    """
    options = [f"-D{key}={value}" for key, value in _spark_defaults().items() if not key.startswith("spark.driver.")]
    options.append(f"-Dlog4j2.configurationFile={SPARK_CONF / 'log4j2.properties'}")
    options.append(_spark_defaults()["spark.driver.extraJavaOptions"])
    options.append(os.environ.get("TIDEGATE_JAVA_OPTIONS", _JAVA_OPTIONS))
    return " ".join(options)


# The first compiler alone has so small a cache for code that a JVM of minutes fills it, and compiles nothing any more.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"


@dataclass(frozen=True)
class Spark:
    """The Spark Connect server of this stack: its ports on loopback, and the token that it asks for."""

    port: int
    ui_port: int
    token: str

    @property
    def ui(self) -> str:
        """Where Spark's UI is."""
        return f"http://127.0.0.1:{self.ui_port}"


def has_spark_server() -> bool:
    """Whether the stack has one: not if TIDEGATE_SPARK_MASTER names another Spark, or TIDEGATE_SPARK_SERVER says no."""
    return not os.environ.get("TIDEGATE_SPARK_MASTER") and os.environ.get("TIDEGATE_SPARK_SERVER") != "no"


def spark_folder(at: Places) -> Path:
    """What the server keeps: its token, and the event logs of its jobs."""
    return at.state / "spark"


def spark_command(at: Places, spark: Spark) -> list[str]:
    """What starts the server; TIDEGATE_SPARK_MEMORY says what its JVM may take."""
    words = [sys.executable, "-m", "tidegate.cli", "spark-server", "--folder", str(spark_folder(at))]
    words += ["--port", str(spark.port), "--ui-port", str(spark.ui_port)]
    memory = os.environ.get("TIDEGATE_SPARK_MEMORY")
    return [*words, "--memory", memory] if memory else words


def spark_connection(spark: Spark | None) -> dict[str, str]:
    """Airflow's connection ``spark_default``: the stack's own server, or what TIDEGATE_SPARK_MASTER names, or none."""
    if spark is not None:
        found = {"conn_type": "spark_connect", "host": "localhost", "port": spark.port, "password": spark.token}
    elif master := os.environ.get("TIDEGATE_SPARK_MASTER"):
        found = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "client"}}
    else:
        return {}
    return {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(found)}


def spark_environment(at: Places) -> dict[str, str]:
    """What Spark applications find: this Python, Tidegate's settings for it, a quick start."""
    variables = {
        "TIDEGATE_STATE": str(at.state),
        "TIDEGATE_WAREHOUSE": str(at.warehouse),
        "TIDEGATE_LANDING": str(at.landing),
        "TIDEGATE_PYTHON": sys.executable,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(SPARK_CONF),
        # The launcher is a JVM of its own that only prints a command.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_SUBMIT_OPTS": os.environ.get("TIDEGATE_JAVA_OPTIONS", _JAVA_OPTIONS),
        "GX_ANALYTICS_ENABLED": "false",
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        "TZ": "UTC",
    }
    if os.environ.get("TIDEGATE_SPARK_MASTER", "local").startswith("local"):
        # Workers would otherwise look for another python3. Nobody else has to reach the driver.
        variables |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return variables | archived_classes()


def archived_classes() -> dict[str, str]:
    """What makes Spark load its classes from the archive; nothing where none was made."""
    if not (CLASS_ARCHIVE.exists() and NO_CONFIGURATION.is_dir()):
        return {}
    return {
        "SPARK_CONF_DIR": str(NO_CONFIGURATION),
        "SPARK_SUBMIT_OPTS": f"{java_options()} -Xlog:disable -XX:SharedArchiveFile={CLASS_ARCHIVE}",
    }


def warm_environment(at: Places) -> dict[str, str]:
    """What makes tasks use warm hosts (infra/spark/warm_host.py); nothing with TIDEGATE_WARM_HOSTS=no.

    With it, TIDEGATE_PYTHON is a client of a host that has everything loaded already.
    """
    if os.environ.get("TIDEGATE_WARM_HOSTS") == "no":
        return {}
    return {
        "TIDEGATE_PYTHON": str(PROJECT / "infra" / "spark" / "bin" / "warm_python"),
        "TIDEGATE_WARM_HOSTS": str(spark_folder(at) / "hosts"),
        "TIDEGATE_WARM_PYTHON": sys.executable,
    }


def database(at: Places) -> str:
    """Airflow's metadata: TIDEGATE_DATABASE, like postgresql+psycopg2://user:password@host/name, or a file of SQLite.

    For PostgreSQL its drivers have to be there: ``pip install psycopg2-binary asyncpg``.
    """
    # SQLite waits for a lock instead of failing after five seconds: the machine may be busy.
    return os.environ.get("TIDEGATE_DATABASE") or f"sqlite:///{at.airflow / 'airflow.db'}?timeout=60"


def airflow_environment(at: Places, port: int, spark: Spark | None) -> dict[str, str]:
    """What the components of Airflow find, for the API server at ``port`` of this machine only."""
    url = f"http://127.0.0.1:{port}"
    return {
        **spark_environment(at),
        **warm_environment(at),
        **spark_connection(spark),
        **({"TIDEGATE_SPARK_UI": spark.ui, "TIDEGATE_SPARK_EVENTS": str(spark_folder(at) / "events")} if spark else {}),
        "AIRFLOW_HOME": str(at.airflow),
        "AIRFLOW__CORE__DAGS_FOLDER": str(at.dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # Forked ahead, each some 100 MB; the pool lets one Spark application run at a time anyway.
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__DEFAULT_TIMEZONE": "utc",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database(at),
        # One user; her password is generated into a file that only its owner reads.
        "AIRFLOW__CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(password_file(at)),
        # These four belong together: a task finds the API server by the last one.
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__INSTANCE_NAME": "Tidegate",
        # A new DAG file is seen after seconds instead of five minutes.
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        # A task's supervisor that misses its end by a moment notices it this much later; five seconds, if not told.
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "TIDEGATE_POOL": "spark",
        "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1", "localhost"])),
        "no_proxy": ",".join(filter(None, [os.environ.get("no_proxy"), "127.0.0.1", "localhost"])),
    }


def password_file(at: Places) -> Path:
    """JSON: user → password."""
    return at.airflow / "passwords.json"


def _spark_defaults() -> dict[str, str]:
    lines = (SPARK_CONF / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    settings = (line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#"))
    return {key: value.strip() for key, value in settings}
