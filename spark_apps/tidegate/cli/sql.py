"""The command ``tidegate sql``."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidegate.cli.arguments import PIPELINE, WAREHOUSE, Commands, add_as_of, command
from tidegate.declarations.errors import UserError
from tidegate.stages.launcher import duration_s


def add(commands: Commands) -> None:
    """Add the command."""
    parser = command(
        commands,
        "sql",
        "serve all tables and marts to SQL clients (PostgreSQL's protocol) until stopped",
        "tidegate sql dags/pipelines/flights --warehouse warehouse\n"
        "  PGPASSWORD=$(cat ~/.local/state/tidegate/flights.sql-password) \\\n"
        "    psql -h 127.0.0.1 -p 15432 -U analyst flights -c 'SELECT * FROM answers LIMIT 5'\n"
        "  tidegate sql dags/pipelines/flights --warehouse warehouse --duckdb > views.sql && duckdb -init views.sql",
    )
    parser.add_argument("pipeline", type=Path, metavar="PIPELINE_DIR", help=PIPELINE)
    parser.add_argument("--warehouse", required=True, metavar="DIR", help=WAREHOUSE)
    parser.add_argument("--port", type=int, default=15432, metavar="N", help="port to listen on (default 15432)")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default 127.0.0.1: this machine only); for any other, give a certificate",
    )
    parser.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="certificate with its chain, PEM: TLS and nothing else"
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="the certificate's key, PEM, without a passphrase")
    parser.add_argument(
        "--password-file",
        type=Path,
        metavar="FILE",
        help="where the password is; made with a generated one (default ~/.local/state/tidegate/PIPELINE.sql-password)",
    )
    parser.add_argument(
        "--timeout", type=duration_s, default=60.0, metavar="TIME", help="longest time of a statement (default 60s)"
    )
    parser.add_argument(
        "--max-rows", type=int, default=1_000_000, metavar="N", help="most rows of a result (default 1000000)"
    )
    parser.add_argument(
        "--memory", type=int, default=512, metavar="MIB", help="memory for one client's statement (default 512)"
    )
    parser.add_argument("--clients", type=int, default=16, metavar="N", help="most clients at a time (default 16)")
    parser.add_argument(
        "--duckdb", action="store_true", help="start no server; print CREATE VIEW statements over the files for DuckDB"
    )
    add_as_of(parser)
    parser.set_defaults(action=_sql)


def _sql(arguments: argparse.Namespace) -> None:
    from tidegate.declarations import load_pipeline
    from tidegate.sql.relations import duckdb_script
    from tidegate.stages.extras import require_extra
    from tidegate.store.warehouse import Warehouse

    pipeline = load_pipeline(arguments.pipeline)
    warehouse = Warehouse(arguments.warehouse, pipeline, arguments.as_of)
    if arguments.duckdb:
        print(duckdb_script(warehouse))
        return
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise UserError("TLS takes both --tls-cert and --tls-key")
    require_extra("sql", "sql")
    from tidegate.sql.door import serve
    from tidegate.sql.engine import Limits

    limits = Limits(arguments.timeout, arguments.max_rows, arguments.memory << 20, arguments.clients)
    tls = None if arguments.tls_cert is None else (arguments.tls_cert, arguments.tls_key)
    serve(warehouse, arguments.host, arguments.port, arguments.password_file, limits, tls)
