"""The path of a stream: a file, wildcards, or the dates in the files' names."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tidegate.declarations.models import from_us

_DAY = r"(?<!\d)(?P<Y>(?:19|20)\d\d)(?P<s>[-_./]?)(?P<m>[01]\d)(?P=s)(?P<d>[0-3]\d)"
# What names a time in a path: its shape and the text around its parts.
_SHAPES = tuple(
    re.compile(shape, re.ASCII)
    for shape in (
        r"year=(?P<Y>\d{4})/month=(?P<m>\d\d)/day=(?P<d>\d\d)/hour=(?P<H>\d\d)",
        r"year=(?P<Y>\d{4})/month=(?P<m>\d\d)/day=(?P<d>\d\d)",
        _DAY + r"/(?:hour=|hr=|h=)?(?P<H>[0-2]\d)(?=/)",
        _DAY + r"[-_T./]?(?P<H>[0-2]\d)[-_:.]?(?P<M>[0-5]\d)(?!\d)",
        _DAY + r"[-_T./]?(?P<H>[0-2]\d)(?!\d)",
        _DAY + r"(?!\d)",
    )
)
_UNITS = (("M", timedelta(minutes=1)), ("H", timedelta(hours=1)), ("d", timedelta(days=1)))


@dataclass(frozen=True)
class FilePattern:
    """``text``: the value of ``path``. ``unit_s``: how much arrival time a file holds, None if names say nothing."""

    text: str
    unit_s: int | None
    why: str
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a stream's files are.

    ``files``: all of them, absolute. ``others``: files beside them that are not the stream's. ``folders``: whether
    folders were named, not files. ``pipeline``: the pipeline's folder. ``spans``: of the files that were read the
    first and last arrival, microseconds.
    """

    files: Sequence[Path]
    others: Sequence[Path]
    folders: bool
    pipeline: Path
    spans: Mapping[Path, tuple[int, int]]


def pattern_of(place: Place) -> FilePattern:
    """The pattern of a stream's files."""
    dated = _dated(place)
    if isinstance(dated, FilePattern):
        return dated
    if len(place.files) == 1 and not place.folders:
        return FilePattern(_written(_fixed(str(place.files[0])), place.pipeline), None, dated)
    depths = sorted(
        {len(file.parts) for file in place.files}, key=lambda d: -sum(len(f.parts) == d for f in place.files)
    )
    files = [file for file in place.files if len(file.parts) == depths[0]]
    remarks: tuple[str, ...] = (
        (f"{len(place.files) - len(files)} files lie deeper or less deep in folders: this path does not read them",)
        if len(depths) > 1
        else ()
    )
    patterns = _wildcards(files)
    best = min(patterns, key=lambda pattern: (_foreign(pattern, place.others), patterns.index(pattern)))
    foreign = _foreign(best, place.others)
    if foreign:
        remarks += (f"this path matches {foreign} files beside them that look different: move those elsewhere",)
    return FilePattern(_written(best, place.pipeline), None, dated, remarks)


def _dated(place: Place) -> FilePattern | str:
    """The pattern with directives; or why names do not say when their records arrived."""
    timed: dict[Path, tuple[str, datetime, timedelta]] = {}
    for file in place.files:
        one = directives(file.as_posix())
        if one is None:
            return ""
        timed[file] = one
    units = {unit for _, _, unit in timed.values()}
    merged = _merged([pattern for pattern, _, _ in timed.values()])
    if len(units) != 1 or merged is None:
        return "the dates in the files' names are not written alike"
    (unit,) = units
    for file, (first_us, last_us) in place.spans.items():
        start = timed[file][1]
        if not start <= from_us(first_us) or not from_us(last_us) < start + unit:
            shown = from_us(last_us if start <= from_us(first_us) else first_us)
            return f"not by the dates in the files' names: {file.name} has a record of {shown:%Y-%m-%d %H:%M:%S} UTC"
    if not place.spans:
        return ""
    starts = {start for _, start, _ in timed.values()}
    if len(starts) < len(timed) and all(
        last - first < unit.total_seconds() * 1e6 / 8 for first, last in place.spans.values()
    ):
        return "the files hold less than the period in their names"
    about = {3600: "hour", 86400: "day"}.get(int(unit.total_seconds()), "minute")
    seen = f"all records seen of {len(place.spans)} files arrived in the {about} (UTC) that the file's name says"
    return FilePattern(_written(merged, place.pipeline), int(unit.total_seconds()), seen)


def directives(path: str) -> tuple[str, datetime, timedelta] | None:
    """A path with strftime directives for the time in it, that time, and the unit that it is exact to.

    >>> pattern, start, unit = directives("/in/2026-01-05T08.jsonl")
    >>> pattern, start.isoformat(), str(unit)
    ('/in/%Y-%m-%dT%H.jsonl', '2026-01-05T08:00:00+00:00', '1:00:00')
    """
    for shape in _SHAPES:
        for match in reversed(list(shape.finditer(path))):
            parts = {name: match.span(name) for name in ("Y", "m", "d", "H", "M") if name in shape.groupindex}
            try:
                start = datetime(*(int(match[name]) for name in parts), tzinfo=UTC)  # type: ignore[misc,arg-type]
            except ValueError:
                continue
            written, at = "", 0
            for name, (first, last) in parts.items():
                written += _fixed(path[at:first]) + f"%{name}"
                at = last
            written += _fixed(path[at:])
            unit = next(unit for name, unit in _UNITS if name in parts)
            return written, start, unit
    return None


def _fixed(text: str) -> str:
    return glob.escape(text).replace("%", "%%")


def _merged(patterns: Sequence[str]) -> str | None:
    """One pattern for all: what differs within a folder's or file's name becomes `*`."""
    rows = [pattern.split("/") for pattern in patterns]
    if len({len(row) for row in rows}) != 1:
        return None
    return "/".join(_same(parts) for parts in zip(*rows, strict=True))


def _same(parts: Sequence[str]) -> str:
    if len(set(parts)) == 1:
        return parts[0]
    ahead = os.path.commonprefix(list(parts))
    # A directive or an escaped sign is not cut in two.
    ahead = ahead[:-1] if ahead.endswith("%") and not ahead.endswith("%%") else ahead
    ahead = re.sub(r"\[[^\]]*$", "", ahead)
    behind = os.path.commonprefix([part[len(ahead) :][::-1] for part in parts])[::-1]
    directive = re.match(r"[A-Za-z%]", behind)
    behind = behind[1:] if directive and any(part[: -len(behind)].endswith("%") for part in parts) else behind
    return f"{ahead}*{behind}"


def _wildcards(files: Sequence[Path]) -> list[str]:
    """Patterns that match all the files, the widest first."""
    folders = _merged([_fixed(file.parent.as_posix()) for file in files])
    names = [file.name for file in files]
    suffixes = {"".join(re.findall(r"\.[A-Za-z]\w*", name)[-2:]) for name in names}
    suffix = _fixed(suffixes.pop()) if len(suffixes) == 1 else ""
    words = {match[0] if (match := re.match(r"[^\W\d_]+[-_.]?", name)) else "" for name in names}
    word = _fixed(words.pop()) if len(words) == 1 else ""
    widest = [f"*{suffix}"] + ([f"{word}*{suffix}"] if word and not word.endswith(".") else [])
    narrowest = [_same([_fixed(name) for name in names])]
    return [f"{folders}/{name}" for name in [*widest, *narrowest]]


def _foreign(pattern: str, others: Sequence[Path]) -> int:
    plain = pattern.replace("%%", "%")
    return sum(
        fnmatch.fnmatch(file.as_posix(), plain) and file.as_posix().count("/") == plain.count("/") for file in others
    )


def _written(pattern: str, pipeline: Path) -> str:
    """The pattern as pipeline.yml has it: relative where the files lie in or beside the pipeline's folder.

    >>> _written("/home/me/landing/*.csv", Path("/home/me/shop")), _written("/data/*.csv", Path("/home/me/shop"))
    ('../landing/*.csv', '/data/*.csv')
    """
    for base, ahead in ((pipeline, ""), (pipeline.parent, "../")):
        start = _fixed(base.as_posix()) + "/"
        if base != Path("/") and base.parent != Path("/") and pattern.startswith(start):
            return ahead + pattern[len(start) :]
    return pattern
