"""Streams at random, as hypothesis draws them: formats, paths, notations of times, dialects of CSV, ids."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tidegate.declarations.models import Column, CsvDialect, Stream

TIMES = ["iso", "iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns", "%d.%m.%Y %H:%M:%S.%f", "%d/%b/%Y:%H:%M:%S %z"]
TIMES += ["%Y-%m-%dT%H:%M:%S.%f%z", "%y%m%d%H%M%S", "%A, %d %B %Y %I:%M:%S %p", "%Y-%j %H:%M", "%m/%d/%Y %H:%M %Z"]
DATES = ["iso", "iso", "%d.%m.%Y", "%Y%m%d", "%Y-%j", "epoch_s", "epoch_ms", "%d %b %Y"]
ZONES = ["UTC", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia"]
DECIMALS = ["decimal(12,3)", "decimal(9,0)", "decimal(4,2)", "decimal(38,10)", "decimal(18,18)"]
TYPES = {"id": "string", "line": "integer", "tenant": "string", "at": "timestamp", "seen": "timestamp", "n": "integer"}
TYPES |= {"x": "double", "price": "decimal", "ok": "boolean", "day": "date", "kind": "string"}
DELIMITERS = [",", ";", "\t", "|"]


@st.composite
def streams(draw: st.DrawFn, kind: str) -> Stream:
    """A stream of a format; most of its keys are as they are by default."""
    names = [name for name in TYPES if name not in ("line", "tenant", "price", "ok") or draw(st.booleans())]
    dialect = draw(dialects()) if kind == "csv" else CsvDialect()
    columns = [draw(column(name, kind)) for name in names]
    if not dialect.header:
        columns = [one.model_copy(update={"path": (place,)}) for place, one in enumerate(columns)]
    ids = [["id"], ["id"], [], ["id", "day"], ["n", "id", "at"], ["kind", "id"]]
    return Stream(
        name="s",
        format=kind,
        path="/feed/*",
        csv=dialect,
        columns=tuple(columns),
        other_columns=draw(st.sampled_from(["ignore", "ignore", "refuse"])) if dialect.header else "ignore",
        event_time="at",
        arrival_time=draw(st.sampled_from(["seen", "seen", None])),
        id=tuple(draw(st.sampled_from(ids))),
        rate=1.0,
        max_early_s=600,
        max_late_s=7200,
    )


@st.composite
def column(draw: st.DrawFn, name: str, kind: str) -> Column:
    """A column of that name."""
    keys: dict[str, Any] = {"name": name, "type": TYPES[name], "nullable": name not in ("kind", "x")}
    if name == "id":
        keys["type"] = draw(st.sampled_from(["string", "integer"]))
    if keys["type"] == "decimal":
        keys["type"] = draw(st.sampled_from(DECIMALS))
    if keys["type"] in ("timestamp", "date"):
        keys["format"] = draw(st.sampled_from(TIMES if keys["type"] == "timestamp" else DATES))
        counted = keys["type"] == "timestamp" and keys["format"].startswith("epoch")
        keys["zone"] = "UTC" if counted else draw(st.sampled_from(ZONES))
    paths: list[tuple[Any, ...]] = [(), (), (), ("top " + name,)]
    if kind in ("jsonl", "json"):
        paths += [
            ("in", name),
            ("in", "deep", name),
            ("in", "list", len(name), name),
            (f"many {name}", 1),
            ("a.b", name),
        ]
    if kind == "avro":
        paths = [(), (), ("in_", name), ("in_", "deep", name), ("list_" + name, 0), ("l_" + name, 0, "x")]
    if kind == "parquet":
        paths += [("in", name), ("in", "deep", name), (f"list {name}", 0), (f"list {name}", 0, "x")]
    keys["path"] = draw(st.sampled_from(paths))
    return Column(**keys)


@st.composite
def dialects(draw: st.DrawFn) -> CsvDialect:
    """How CSV files are written."""
    delimiter = draw(st.sampled_from(DELIMITERS))
    return CsvDialect(
        delimiter=delimiter,
        header=draw(st.sampled_from([True, True, False])),
        decimal=draw(st.sampled_from([".", "."] if delimiter == "," else [".", ","])),
        quote=draw(st.sampled_from(['"', '"', "'", ""])),
        encoding=draw(st.sampled_from(["utf-8", "utf-8", "iso8859-1", "cp1252", "utf-16"])),
        nulls=draw(st.sampled_from([("",), ("", "NA"), ("", "-", "NULL")])),
        comment=draw(st.sampled_from(["", "", "#"])),
    )
