"""What a promise holds for: ``OR 50 IN column``, ``FOR 99% OF GROUPS``, ``FOR EACH column``, behind its percentage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot.tokens import Token, TokenType

from tidegate.aggregates import AGGREGATES, AggregateFunction
from tidegate.declarations.models import Aggregate, GroupColumn, Output
from tidegate.declarations.positions import Misspelt, Report
from tidegate.declarations.units import UnreadableError, read_amount, read_share

FLOOR_SHAPE = "OR 50 IN column"
GROUPS_SHAPE = "FOR 99% OF GROUPS"
EACH_SHAPE = "FOR EACH column, column …"


@dataclass(frozen=True)
class NamedColumn:
    """A column of the answer that a promise names, and where."""

    name: str
    offset: int


@dataclass
class PromisedFor:
    """What stands behind a promise's percentage.

    ``groups_within``: FOR … OF GROUPS as a fraction. ``floors``: each OR … IN. ``for_each``: the columns of FOR EACH.
    ``groups_at``, ``each_at``: where these stand, None: nowhere.
    """

    groups_within: float = 1.0
    floors: list[tuple[NamedColumn, float]] = field(default_factory=list)
    for_each: list[NamedColumn] = field(default_factory=list)
    groups_at: int | None = None
    each_at: int | None = None


def is_word(token: Token, *words: str) -> bool:
    """Whether a token is one of these words, and no name in quotes."""
    return token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() in words


def names_column(tokens: Sequence[Token], index: int) -> bool:
    """Whether the token before says that this one is the name of a column, whatever word it is."""
    return index > 0 and (is_word(tokens[index - 1], "IN", "EACH") or tokens[index - 1].text == ",")


def read_promised_for(values: list[Token], promise: str, report: Report) -> tuple[list[Token], PromisedFor]:
    """What stands behind the percentage of a promise, ERROR or ACCURACY; and the tokens before it."""
    promised = PromisedFor()
    starts = [i for i, token in enumerate(values) if is_word(token, "FOR", "OR") and not names_column(values, i)]
    if not starts:
        return values, promised
    if starts[0] == 0:
        word = values[0].text.upper()
        report.add(values[0].start, f"the promise stands before {word}", f"{promise} 5% {word} …")
        return [], promised
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        part = values[start:end]
        if is_word(part[0], "OR"):
            _read_floor(part, promise, promised, report)
        elif len(part) > 1 and is_word(part[1], "EACH"):
            _read_each(part, promise, promised, report)
        else:
            _read_groups(part, promise, promised, report)
    return values[: starts[0]], promised


def _read_floor(part: list[Token], promise: str, promised: PromisedFor, report: Report) -> None:
    if promise != "ERROR":
        report.add(part[0].start, "OR gives an ERROR its floor", f"{promise} without OR")
        return
    if len(part) < 4 or not is_word(part[-2], "IN") or part[-1].token_type is TokenType.STRING:
        report.add(part[0].start, "OR cannot be read", FLOOR_SHAPE)
        return
    column = NamedColumn(part[-1].text, part[-1].start)
    try:
        amount = read_amount(_text(part[1:-2], report))
    except UnreadableError as error:
        report.add(part[1].start, error.message, error.expected, error.misspelt)
        return
    if any(known.name.lower() == column.name.lower() for known, _ in promised.floors):
        report.add(column.offset, f"the floor in '{column.name[:60]}' is given twice")
        return
    promised.floors.append((column, amount))


def _read_groups(part: list[Token], promise: str, promised: PromisedFor, report: Report) -> None:
    shape = GROUPS_SHAPE if promise == "ERROR" else EACH_SHAPE
    if len(part) < 4 or not (is_word(part[-2], "OF") and is_word(part[-1], "GROUPS")):
        report.add(part[0].start, "FOR cannot be read", shape)
    elif promise != "ERROR":
        report.add(part[0].start, "FOR … OF GROUPS belongs to ERROR", shape)
    elif promised.groups_at is not None:
        report.add(part[0].start, "FOR … OF GROUPS is given twice")
    else:
        promised.groups_at = part[0].start
        try:
            promised.groups_within = read_share(_text(part[1:-2], report))
        except UnreadableError as error:
            report.add(part[1].start, error.message, error.expected, error.misspelt)
            return
        if promised.groups_within == 1:
            report.add(part[1].start, "100% of the groups is what ERROR promises alone", "less than 100%, or no FOR")


def _read_each(part: list[Token], promise: str, promised: PromisedFor, report: Report) -> None:
    names, commas = part[2::2], part[3::2]
    readable = len(names) == len(commas) + 1 and all(token.text == "," for token in commas)
    readable &= all(token.token_type is not TokenType.STRING and token.text != "," for token in names)
    if promise != "ACCURACY":
        report.add(part[0].start, "FOR EACH belongs to the ACCURACY of best in groups", GROUPS_SHAPE)
    elif not readable:
        report.add(part[0].start, "FOR EACH cannot be read", EACH_SHAPE)
    elif promised.each_at is not None:
        report.add(part[0].start, "FOR EACH is given twice")
    else:
        promised.each_at = part[0].start
        promised.for_each = [NamedColumn(token.text, token.start) for token in names]


def _text(tokens: list[Token], report: Report) -> str:
    return report.source.text[tokens[0].start : tokens[-1].end + 1]


def floors_of(
    promised: PromisedFor, outputs: Sequence[Output], aggregates: Sequence[Aggregate], report: Report
) -> dict[str, float]:
    """Column of the answer → the floor of its error; they are counts and sums, which are 0 of nothing."""
    functions = {a.slot: AGGREGATES[a.function] for a in aggregates}
    by_name = {output.name.lower(): output for output in outputs}
    floors = {}
    for column, amount in promised.floors:
        output = by_name.get(column.name.lower())
        if output is None:
            possible = [o.name for o in outputs if _is_floored(functions, o)]
            expected = f"one of {', '.join(possible)}" if possible else "a COUNT or a SUM of the answer"
            message = f"the answer has no column '{column.name[:60]}'"
            report.add(column.offset, message, expected, Misspelt(column.name, possible))
        elif not _is_floored(functions, output):
            message = f"'{output.name}' is no COUNT and no SUM, and only these have a floor"
            report.add(column.offset, message, f"{output.name} without OR, or a column that is a COUNT or a SUM alone")
        else:
            floors[output.name] = amount
    return floors


def _is_floored(functions: Mapping[str, AggregateFunction], output: Output) -> bool:
    """Whether a column of the answer is a count or a sum, and nothing computed of it."""
    function = functions.get(output.expression)
    return function is not None and function.zero_of_nothing


def for_each_of(
    promised: PromisedFor, groups: Sequence[GroupColumn], within: Sequence[str], report: Report
) -> tuple[str, ...]:
    """The answer's columns of FOR EACH: some of those for each of whose values the answer has its best."""
    shown = {group.column.lower(): group.shown_as for group in groups if group.shown_as in within}
    shown |= {name.lower(): name for name in within}
    columns: list[str] = []
    for column in promised.for_each:
        name = shown.get(column.name.lower())
        if name is None:
            message = f"the answer has no best for each '{column.name[:60]}'"
            expected = f"one of {', '.join(within)}" if within else "QUALIFY … PARTITION BY it"
            report.add(column.offset, message, expected, Misspelt(column.name, within))
        elif name not in columns:
            columns.append(name)
    return tuple(columns)
