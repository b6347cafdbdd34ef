"""Names that Tidegate takes, made of names that people gave."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidegate.declarations.names import EVENT_COLUMNS, MAX_NAME, identifier_refusal, refusal
from tidegate.guess.columns import Seen
from tidegate.guess.records import Steps
from tidegate.guess.roles import Identity, Times

_GENERIC_WORDS = """
    a b c x y data landing input in out raw files file tmp temp downloads download test sample samples part new export
    dump output incoming inbox year month day hour date dt
"""
_GENERIC = frozenset(_GENERIC_WORDS.split())
_LETTERS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ø": "o", "æ": "ae"}
)
_SUFFIXES = re.compile(r"(\.(jsonl?|ndjson|csv|tsv|txt|log|parquet|avro|gz|zst|zstd|snappy))+$", re.IGNORECASE)


def column_names(columns: Sequence[Seen], times: Times, identity: Identity) -> dict[Steps, str]:
    """Path → a legal name that is no other column's.

    The name of its field where that is legal, else the fields of its path, joined.
    """
    names: dict[Steps, str] = {}
    used: set[str] = set()
    roles = {
        "event_time": times.event.path,
        "arrival_time": times.arrival.path,
        "event_id": identity.columns[0].path if len(identity.columns) == 1 else (),
    }
    for column in columns:
        name = column_name(column.path)
        lower = name.lower()
        if lower in EVENT_COLUMNS and (name != lower or roles[lower] != column.path):
            name = f"{name}_seen"
        base, number = name, 2
        while name.lower() in used:
            name, number = f"{base[: MAX_NAME - 4]}_{number}", number + 1
        used.add(name.lower())
        names[column.path] = name
    return names


def column_name(path: Steps) -> str:
    """A legal name for the column at a path.

    >>> [column_name(path) for path in (("actor", "login"), ("_id", "$oid"), ("Menge (kg)",), ("order",), (3,))]
    ['actor_login', 'id', 'Menge_kg', 'order', 'c3']
    """
    if path == ("$timestamp",):
        return "sent_at"
    if len(path) == 1 and isinstance(path[0], int):
        return f"c{path[0]}"
    steps = [step for step in path if not (isinstance(step, str) and step.startswith("$"))] or list(path)
    name = _ascii("_".join(str(step) for step in steps))[:MAX_NAME]
    if not name or not name[0].isalpha():
        name = f"c_{name}".rstrip("_")[:MAX_NAME]
    return name if refusal(name, "column") is None else f"{name[: MAX_NAME - 1]}_"


def stream_name(files: Sequence[Path], folder: Path | None, pipeline: str, used: Iterable[str]) -> str:
    """A name for the stream of these files: what their names share, else their folder's, else the pipeline's.

    ``folder``: the folder that was named, if one was.

    >>> stream_name([Path("/in/orders-20260105.csv.gz")], None, "shop", [])
    'orders'
    >>> stream_name([Path("/a.csv")], None, "shop", [])
    'shop'
    """
    stems = [_SUFFIXES.sub("", file.name) for file in files]
    common = stems[0]
    for stem in stems[1:]:
        while not stem.startswith(common):
            common = common[:-1]
    deepest = Path(os.path.commonpath([file.parent for file in files]))
    parents = [deepest, *deepest.parents]
    named = parents[: parents.index(folder) + 1] if folder in parents else parents[:1]
    for candidate in (common, *(parent.name for parent in named), pipeline):
        words = [word for word in re.split(r"[^a-z]+|(?<=[a-z])_", _ascii(candidate).lower()) if word]
        words = [word for word in words if word not in _GENERIC and len(word) > 1]
        name = "_".join(words)[:40].strip("_")
        if name and identifier_refusal(name, "stream") is None and name not in used:
            return name
    number = 1 + len(list(used))
    return f"events_{number}" if number > 1 else "events"


def _ascii(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS)).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")
