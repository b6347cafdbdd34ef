"""Lookups beside their definition: the row of the key that is valid at the instant, found by looking at every row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.declarations.models import Column, Lookup, ReferenceTable, to_us
from tidegate.operators.lookup import Keyed
from tidegate.store.references import References, Version
from tidegate.values.types import TIMESTAMP

START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = st.tuples(st.sampled_from(["a", "b", "c", ""]), st.integers(0, 2))
TIMES = st.integers(0, 6)


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[tuple[str, int], int, int]]:
    """Key, from, to: of each key the spans do not overlap."""
    rows = []
    for key in draw(st.lists(KEYS, unique=True, max_size=6)):
        bounds = sorted(draw(st.lists(TIMES, unique=True, max_size=5)))
        rows += [(key, a, b) for a, b in zip(bounds, bounds[1:], strict=False) if draw(st.booleans())]
    return draw(st.permutations(rows))


def columns(keys: list[tuple[Any, Any]]) -> list[pa.Array]:
    return [pa.array([k[0] for k in keys], pa.string()), pa.array([k[1] for k in keys], pa.int64())]


@given(spans(), st.lists(st.tuples(st.sampled_from(["a", "b", "d", None]), st.sampled_from([0, 1, 7, None]), TIMES)))
def test_the_row_is_the_one_that_is_valid(rows, asked) -> None:
    bounds = [np.array([row[i] for row in rows], np.int64) for i in (1, 2)]
    keyed = Keyed.of(columns([row[0] for row in rows]), *bounds)
    assert keyed.clash() is None
    places = keyed.places(columns([one[:2] for one in asked]), np.array([one[2] for one in asked], np.int64))
    for place, (text, number, at) in zip(places.tolist(), asked, strict=True):
        valid = [i for i, (key, a, b) in enumerate(rows) if key == (text, number) and a <= at < b]
        assert [place] == (valid or [-1])


@given(st.lists(st.tuples(KEYS, TIMES, TIMES), max_size=8))
def test_rows_that_one_key_names_at_one_instant_clash(rows) -> None:
    rows = [(key, min(a, b), max(a, b) + 1) for key, a, b in rows]
    clash = Keyed.of(
        columns([row[0] for row in rows]), *(np.array([row[i] for row in rows], np.int64) for i in (1, 2))
    ).clash()
    both = [
        (i, j)
        for j, (key, a, b) in enumerate(rows)
        for i, (other, c, d) in enumerate(rows[:j])
        if key == other and a < d and c < b
    ]
    assert (clash is None) == (not both)
    assert clash is None or clash in both


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", ["x", "X", ""]),
        ("integer", [-(2**62), 0, 2**62]),
        ("boolean", [True, False]),
        ("timestamp", [START, START + timedelta(microseconds=1)]),
        ("date", [START.date(), START.date() + timedelta(days=1)]),
        ("decimal(4,2)", [Decimal("1.10"), Decimal("-1.10")]),
    ],
)
def test_every_type_of_key_is_looked_up_among_several_versions(kind: str, values: list[Any], tmp_path) -> None:
    """Each hour another version; a batch of two hours meets both, and tuples of a third one none."""
    key = Column(name="key", type=kind, nullable=False)
    table = ReferenceTable(
        name="t", path="", format="csv", columns=(key, Column(name="what", type="string")), key=("key",)
    )
    versions = {}
    for hour in (0, 1):
        rows = [{"table_version": f"v{hour}", "key": v, "what": f"{hour}:{i}"} for i, v in enumerate(values[hour:])]
        path = tmp_path / f"{hour}.parquet"
        pq.write_table(pa.Table.from_pylist(rows), path)
        versions[to_us(START + timedelta(hours=hour))] = Version(f"v{hour}", (str(path),))
    references = References({"t": table}, {"t": versions}, 3_600_000_000)
    lookup = Lookup(table="t", keys=("k",))
    kinds = pa.table({"key": values}).schema.field("key").type
    for batch in (pa.Table, pa.RecordBatch):
        own = [(value, hour) for hour in (0, 1, 2) for value in [*values, None]]
        times = pa.array([START + timedelta(hours=hour, minutes=5) for _, hour in own], TIMESTAMP)
        tuples = batch.from_arrays(
            [times, times, pa.array([v for v, _ in own], kinds)], names=["event_time", "arrival_time", "k"]
        )
        found = references.extended(tuples, [lookup]).column(lookup.name_of("what")).to_pylist()
        expected = [
            f"{hour}:{values.index(value) - hour}"
            if hour < 2 and value is not None and values.index(value) >= hour
            else None
            for value, hour in own
        ]
        assert found == expected
