"""README and the documentation site: short enough, complete, current, and loading nothing from outside.

`mkdocs build --strict` itself checks links and anchors. The reference is generated while the site is built, so what is
tested here is that everything is in it.
"""

from __future__ import annotations

import gzip
import html
import io
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from infra.docs import hooks, reference
from tests.command import ROOT

from tidegate import cli
from tidegate.declarations import load_pipeline
from tidegate.declarations.pipeline_file import PIPELINE_KEYS, RETENTION_KEYS
from tidegate.declarations.source_section import KAFKA_KEYS, SOURCE_KEYS, SPARK_KEYS
from tidegate.declarations.stream_section import COLUMN_KEYS, HISTORY_KEYS, STREAM_KEYS
from tidegate.declarations.tables import schema, tables
from tidegate.engine.context import RunContext
from tidegate.stages import ingest
from tidegate.store.intervals import intervals_between
from tidegate.store.warehouse import Warehouse

README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):.*?## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'spark_apps'}"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def text_of(site: Path, page: str) -> str:
    """A page's text without tags."""
    body = (site / page).read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<[^>]+>", "", body))


def documents() -> list[Path]:
    """Every Markdown file that people read."""
    return [ROOT / source for source in hooks.ELSEWHERE] + sorted((ROOT / "docs").rglob("*.md"))


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_the_first_screen_of_the_readme_has_a_picture_and_the_two_commands() -> None:
    screen = "\n".join(README.splitlines()[:40])
    picture = re.search(r"!\[[^\]]+\]\((\S+)\)", screen)
    assert picture is not None
    assert 0 < (ROOT / picture[1]).stat().st_size < 200_000
    assert "make demo" in screen
    assert "make test" in screen


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_make_targets_and_commands_that_are_named_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z][a-z-]*)", text, re.MULTILINE))
    assert named <= TARGETS
    commands = set(reference._commands())
    assert set(re.findall(r"(?:^ {4}|`)tidegate ([a-z][a-z-]*)", text, re.MULTILINE)) <= commands


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_files_resolve(path: Path) -> None:
    prose = "".join(part for part in hooks._FENCE.split(path.read_text(encoding="utf-8")) if part[:3] != "```")
    targets = [match[3].partition("#")[0] for match in hooks._LINK.finditer(prose)]
    missing = [t for t in targets if t and "://" not in t and not (path.parent / t).exists()]
    assert missing == []


def test_no_page_loads_anything_from_outside(site: Path) -> None:
    pattern = re.compile(r"""<(?:script|link|img|iframe|source)[^>]*?(?:src|href)=["']?((?:https?:)?//[^"' >]+)""")
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    found = {(page.name, url) for page in pages for url in pattern.findall(page.read_text(encoding="utf-8"))}
    assert found == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?https?:", styles) == []


def test_every_generated_part_is_on_a_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert set(reference.MARKER.findall(pages)) == set(reference.PARTS)


def test_every_key_is_in_the_reference(site: Path) -> None:
    page = (site / "reference" / "pipeline-file.html").read_text(encoding="utf-8")
    sources = (SOURCE_KEYS, KAFKA_KEYS, SPARK_KEYS)
    for keys in (PIPELINE_KEYS, STREAM_KEYS, *sources, COLUMN_KEYS, HISTORY_KEYS, RETENTION_KEYS):
        for key, meaning in keys.items():
            assert re.search(rf"<tr>\s*<td><code>{key}</code></td>", page), key
            assert meaning.endswith(".")


def test_needs_and_defaults_are_those_of_the_reader() -> None:
    text = reference.pipeline_keys()
    assert "| `name` | yes |  |" in text
    assert "| `promise_period` |  | `1 day` |" in text
    assert "| `max_late` |  | the horizon |" in text
    assert "| `min_fraction` |  | `0.1%` |" in text
    assert "| `nullable` |  | `true` |" in text


def test_every_table_and_column_is_in_the_reference(site: Path) -> None:
    pipeline = load_pipeline(reference.FLIGHTS)
    page = (site / "reference" / "tables.html").read_text(encoding="utf-8")
    sections = dict(re.findall(r'<h2 id="([^"]+)">.*?</h2>(.*?)(?=<h2|</article>)', page, re.DOTALL))
    for table in tables(pipeline):
        section = sections[re.sub("[<>]", "", reference._pattern(table))]
        if table == reference._pattern(table) or f"<code>{table}</code>" in section:
            for column in schema(pipeline, table).names:
                assert f"<td><code>{column}</code></td>" in section, (table, column)


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    page = text_of(site, "reference/command-line.html")
    for name, command in reference._commands().items():
        assert f"tidegate {name}" in page
        for action in command._actions:
            for option in action.option_strings[-1:]:
                assert option == "--help" or option in page, (name, option)
    assert cli.EXIT_CODES.splitlines()[1].strip() in page


def test_every_case_of_the_query_language_is_in_the_reference(site: Path) -> None:
    page = text_of(site, "reference/query-language.html")
    squeezed = re.sub(r"\s+", "", page)
    for name in ("query_language/valid.txt", "query_language/mistakes.txt"):
        for _, query, expected in reference._cases(name):
            assert re.sub(r"\s+", "", query) in squeezed
            if "mistakes" in name:
                assert re.sub(r"\s+", "", expected) in squeezed


def test_environment_variables_of_the_product_are_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(TIDEGATE_\w+)`", page, re.MULTILINE))
    # Set by Tidegate for its own processes.
    internal = {f"TIDEGATE_{name}" for name in ("DBT_SLICE", "LOAD_CLASSES", "STACK", "WARM", "WARM_PYTHON")}
    folders = ("spark_apps", "dags", "expectations", "infra/airflow", "infra/spark")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".yml")]
    named = {name for path in files for name in re.findall(r"TIDEGATE_[A-Z_]+", path.read_text(encoding="utf-8"))}
    assert len(listed) >= 10
    assert listed - named == set()
    assert named - listed - internal == set()


def test_the_example_of_the_readme_is_the_one_that_init_writes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", "init", "shop"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    command = re.search(r"tidegate (run shop .*)", done.stdout)
    assert command is not None
    for text in (README, (ROOT / "docs" / "tutorial" / "first-pipeline.md").read_text(encoding="utf-8")):
        assert f"    tidegate {command[1]}\n" in text
    query = (tmp_path / "shop" / "queries" / "largest_orders.sql").read_text(encoding="utf-8")
    statement = "\n".join(line for line in query.strip().splitlines() if not line.startswith("--"))
    assert f"```sql\n{statement}\n```" in README


def test_the_numbers_of_the_example_are_those_of_its_data(tmp_path: Path) -> None:
    """The records that the README says were read, accepted and refused, by what `init` generated."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.cli", "init", "shop"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    shown = re.search(r"([\d,]+) records read, ([\d,]+) accepted, ([\d,]+) refused", README)
    said = re.search(r"(\d+) records of.*\n\s+(\d+) of them will be refused", done.stdout)
    assert shown is not None and said is not None
    read, accepted, refused = (int(number.replace(",", "")) for number in shown.groups())
    assert (read, refused) == (int(said[1]), int(said[2]))
    assert read == accepted + refused


@dataclass(frozen=True)
class DataExample:
    """One example of the page about data: a sample, how its stream is declared, and the tuples that it becomes."""

    title: str
    kind: str
    sample: str
    declared: str
    shown: str


def data_examples() -> list[DataExample]:
    """The examples of docs/how-to/data-of-your-own.md: three fences after each other."""
    page = (ROOT / "docs" / "how-to" / "data-of-your-own.md").read_text(encoding="utf-8")
    fences = r"```(json|csv|python)\n(.*?)```\n.*?```yaml\n(.*?)```\n.*?```text\n(.*?)```"
    parts = re.split(r"^##+ (.*)$", page, flags=re.MULTILINE)
    return [
        DataExample(title, *example)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
        for example in re.findall(fences, text, re.DOTALL)
    ]


DATA_PIPELINE = """\
name: own
owner: nobody
start: 2026-01-05T00:00:00Z
interval: 1 day
tick: 1 hour
horizon: 1 day
memory_budget: 1 MiB
process_budget: 3 GiB
streams:
  s:
    path: data/*
    rate: 1 per hour
"""


def test_every_kind_of_data_has_an_example() -> None:
    titles = [example.title for example in data_examples()]
    assert len(titles) == 12
    page = (ROOT / "docs" / "how-to" / "data-of-your-own.md").read_text(encoding="utf-8")
    assert page.count("```yaml") == len(titles)


@pytest.mark.parametrize("example", data_examples(), ids=lambda example: f"{example.title} {example.kind}")
def test_data_become_the_tuples_that_the_page_shows(
    example: DataExample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "own"
    (folder / "queries").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "queries" / "n.sql").write_text("SELECT COUNT(*) AS n FROM s [1 HOUR] EVERY 1 HOUR\n")
    stream = textwrap.indent(example.declared, "    ")
    (folder / "pipeline.yml").write_text(DATA_PIPELINE + stream, encoding="utf-8")
    monkeypatch.chdir(folder / "data")
    if example.kind == "python":
        modules = {"fastavro": fastavro, "gzip": gzip, "pa": pa, "pq": pq}
        exec(example.sample, {**modules, "datetime": datetime, "UTC": UTC, "Path": Path})
    else:
        Path(f"sample.{example.kind}").write_text(example.sample, encoding="utf-8")
    pipeline, day = load_pipeline(folder), datetime(2026, 1, 5, tzinfo=UTC)
    with RunContext(pipeline, tmp_path / "warehouse", output=io.StringIO(), here=True) as context:
        ingest.read(context, intervals_between(pipeline, day, day + timedelta(days=1)))
    head, *rows = example.shown.splitlines()
    warehouse = Warehouse(tmp_path / "warehouse", pipeline)
    names = head.split(" | ")
    tuples = warehouse.read_arrow("events_s", columns=names).select(names).to_pylist()
    refused = [
        f"refused: {row['reason']}, column {row['column']}" for row in warehouse.read_arrow("quarantine").to_pylist()
    ]
    accepted = [" | ".join(_as_shown(value) for value in row.values()) for row in tuples]
    assert sorted(accepted + refused) == sorted(rows)


def _as_shown(value: object) -> str:
    """A value as the page shows it."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return "NULL" if value is None else str(value).replace("\n", "⏎")
