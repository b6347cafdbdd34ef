"""Pipelines of strangers: a dozen in ``make test``; when slow, those that once broke a law and many more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.strangers.case import Case, read_case
from tests.strangers.datasets import DATASETS
from tests.strangers.further import FURTHER_FROM, further
from tests.strangers.generator import generate, stream
from tests.strangers.machine import judge
from tests.strangers.pool import Pool

# Their coverage is not measured: that would take twice as long, most of it in what judges them.
pytestmark = [pytest.mark.e2e, pytest.mark.no_cover, pytest.mark.timeout(1800)]

# With three real data sets a dozen. Of the first seeds these take least; 100 publishes, which costs as much as three.
SEEDS = (100, 103, 107, 109, 110, 112, 116, 117)
AS_TASKS = (179,)
# Of those with further clauses: `tests.strangers.further`.
FURTHER = (1_000_001,)
REGRESSIONS = Path(__file__).with_name("regressions.txt")


def regressions() -> list[int]:
    """Seeds that once broke a law; each line says which fault it was."""
    lines = REGRESSIONS.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    assert not pool.dishonest, str(pool)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_strangers_pipeline_keeps_every_law(seed: int, pool: Pool, tmp_path: Path) -> None:
    keep(seed, pool, tmp_path)


@pytest.mark.parametrize("seed", FURTHER)
def test_a_strangers_further_clauses_keep_every_law(seed: int, pool: Pool, tmp_path: Path) -> None:
    keep(seed, pool, tmp_path)


@pytest.mark.parametrize("seed", AS_TASKS)
def test_tasks_of_spark_give_a_stranger_the_rows_of_one_process(
    seed: int, spark: Any, pool: Pool, tmp_path: Path
) -> None:
    keep(seed, pool, tmp_path, spark)


@pytest.mark.slow
@pytest.mark.parametrize("seed", regressions())
def test_what_once_broke_a_law_keeps_it(seed: int, pool: Pool, tmp_path: Path) -> None:
    keep(seed, pool, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(100, 119), *range(1000, 1100)])
def test_many_strangers_pipelines_keep_every_law(seed: int, pool: Pool, tmp_path: Path) -> None:
    keep(seed, pool, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000_002, 1_000_040))
def test_many_strangers_further_clauses_keep_every_law(seed: int, pool: Pool, tmp_path: Path) -> None:
    keep(seed, pool, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1100, 1150))
def test_tasks_of_spark_give_many_strangers_the_rows_of_one_process(
    seed: int, spark: Any, pool: Pool, tmp_path: Path
) -> None:
    keep(seed, pool, tmp_path, spark)


@pytest.mark.parametrize("name", DATASETS)
def test_real_data_keep_every_law(name: str, pool: Pool, tmp_path: Path) -> None:
    judged(DATASETS[name](), f"--data {name}", pool, tmp_path)


def keep(seed: int, pool: Pool, folder: Path, spark: Any = None) -> None:
    """Judge a seed's case."""
    judged(generate(seed), f"{'' if spark is None else '--spark '}--seed {seed} --keep DIR", pool, folder, spark)


def judged(case: Case, options: str, pool: Pool, folder: Path, spark: Any = None) -> None:
    """Judge a case; what breaks says how to run it again."""
    verdict = judge(case, folder, spark)
    pool.add(verdict.covered)
    broken = "\n".join(f"{breach.law}: {breach.message}" for breach in verdict.breaches)
    assert not verdict.breaches, f"python -m tests.strangers {options}\n{broken}"


def test_every_further_clause_is_among_a_few_dozen_cases() -> None:
    plain = Case("", {"name": "p"}, {"plain": "SELECT …"}, (), datetime(2024, 1, 1, tzinfo=UTC), 4)
    cases = []
    for seed in range(60):
        specs = [stream(seed, name, 3600, 300, 3600, 4, 300) for name in ("orders", "s")]
        cases.append(further(plain, seed, specs, 300, 3600, 3600))
    assert any(case.derived for case in cases) and any("tables" in case.declaration for case in cases)
    texts = [text for case in cases for text in case.queries.values()]
    for clause in ("JOIN kinds", "FROM derived_", "% OF GROUPS", " IN v", "FOR EACH", "LIMIT", "QUALIFY", "TIME ZONE",
                   "session_window(", "LEFT SEMI JOIN", "LEFT ANTI JOIN", "NOT EXISTS", "EMIT EARLY", "UNTIL FINAL",
                   "PERCENTILE", "DISTINCT", "STDDEV", "FILTER"):  # fmt: skip
        assert any(clause in text for text in texts), clause


def test_an_earlier_seed_has_none_of_them() -> None:
    assert not any(case.derived or case.readings for case in map(generate, (5, FURTHER_FROM - 1)))


def test_a_seed_gives_the_same_case_every_time() -> None:
    assert generate(7) == generate(7)
    assert generate(7) != generate(8)


@pytest.mark.parametrize("seed", [5, 1_000_003])
def test_a_case_that_is_kept_has_the_same_files(seed: int, tmp_path: Path) -> None:
    case = generate(seed)
    case.write(tmp_path / "one")
    kept = read_case(tmp_path / "one")
    assert (kept.derived, kept.readings) == (case.derived, case.readings)
    kept.write(tmp_path / "two")

    def contents(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert {name for name in one if one[name] != two.get(name)} <= {"case.json"}
    assert one.keys() == two.keys()
