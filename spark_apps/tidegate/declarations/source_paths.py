"""Where in a record a column's value is: the key ``from`` of a column, as text and as steps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidegate.declarations.models import PathStep
from tidegate.declarations.units import UnreadableError, shown

_NAME = re.compile(r"`((?:[^`]|``)+)`|([^.\[\]`]+)")
_ELEMENT = re.compile(r"\[([0-9]{1,9})\]", re.ASCII)


def read_path(text: str) -> tuple[PathStep, ...]:
    """The steps of a path: names of fields, and numbers of lists' elements.

    >>> read_path("payload.commits[0].sha"), read_path("`a.b`.c")
    (('payload', 'commits', 0, 'sha'), ('a.b', 'c'))
    """
    steps: list[PathStep] = []
    at = 0
    while at < len(text):
        element = _ELEMENT.match(text, at)
        if element and steps:
            steps.append(int(element[1]))
            at = element.end()
            continue
        if steps:
            if text[at] != ".":
                break
            at += 1
        name = _NAME.match(text, at)
        if name is None:
            break
        steps.append(name[1].replace("``", "`") if name[1] else name[2])
        at = name.end()
    else:
        if steps:
            return tuple(steps)
    expected = "fields and elements, such as actor.login or items[0].price; a name with a dot in backticks"
    raise UnreadableError(f"{shown(text)} is not a path", expected)


def read_cell(text: str) -> tuple[PathStep, ...]:
    """Where a CSV file has a column: under a name of its header, or at a place in the line, from 0.

    >>> read_cell("Amount (EUR)"), read_cell("[3]")
    (('Amount (EUR)',), (3,))
    """
    place = _ELEMENT.fullmatch(text)
    return (int(place[1]),) if place else (text,)


def show_path(steps: Sequence[PathStep]) -> str:
    """A path as ``read_path`` reads it.

    >>> show_path(("payload", "commits", 0, "a.b"))
    'payload.commits[0].`a.b`'
    """
    shown_steps = ""
    for step in steps:
        if isinstance(step, int):
            shown_steps += f"[{step}]"
            continue
        plain = re.fullmatch(r"[^.\[\]`]+", step)
        name = step if plain else "`" + step.replace("`", "``") + "`"
        shown_steps += f".{name}" if shown_steps else name
    return shown_steps
