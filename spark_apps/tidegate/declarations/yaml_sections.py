"""Mappings of a YAML file, read key by key with positions.

A section is closed: keys that it does not know, keys given twice and keys without a value are mistakes. Values are read
from the text as written (``1_000``, ``on`` and ``2013-01-01`` have no hidden meaning) by a converter that raises
`UnreadableError`. Environment variables are expanded in values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

import yaml

from tidegate.declarations.positions import Report, nearest_name
from tidegate.declarations.units import UnreadableError, shown

T = TypeVar("T")

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE_BODY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL)


def expand_variables(text: str) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}`` (also for an empty value, as a shell does)."""

    def value(match: re.Match[str]) -> str:
        body = _VARIABLE_BODY.fullmatch(match[1])
        if not body:
            raise UnreadableError(f"{shown(match[0])} is not an environment variable", "${NAME} or ${NAME:-default}")
        name, has_default, default = body.groups()
        found = os.environ.get(name)
        if has_default:
            return found or default
        if found is None:
            raise UnreadableError(f"the environment variable {name} is not set", f"{name} set, or ${{{name}:-default}}")
        return found

    expanded = _VARIABLE.sub(value, text)
    if "${" in _VARIABLE.sub("", text):
        raise UnreadableError(f"'${{' without '}}' in {shown(text)}", "${NAME} or ${NAME:-default}")
    return expanded


class Section:
    """One mapping. ``known`` are the keys it may have; None: any (names chosen by the user)."""

    def __init__(self, report: Report, node: yaml.Node, title: str, known: Collection[str] | None = None):
        self.report = report
        self.title = title
        self.offset = node.start_mark.index
        self._entries: dict[str, tuple[int, yaml.Node]] = {}
        self._misspelt: set[str] = set()
        if not isinstance(node, yaml.MappingNode):
            report.add(self.offset, f"{title} is not a mapping", "keys and values, 'key: value' on each line")
            return
        for key_node, value_node in node.value:
            self._add(key_node, value_node, known)

    def _add(self, key_node: yaml.Node, value_node: yaml.Node, known: Collection[str] | None) -> None:
        offset = key_node.start_mark.index
        if not isinstance(key_node, yaml.ScalarNode):
            self.report.add(offset, "a key is not plain text", "a name")
            return
        key = key_node.value
        if key == "<<":
            self.report.add(offset, "merge keys ('<<') are not supported", "the keys written out")
        elif known is not None and key not in known:
            nearest = nearest_name(key, [name for name in known if name not in self._entries])
            self._misspelt.add(nearest)
            self.report.add(offset, f"unknown key {shown(key)} in {self.title}", f"one of {', '.join(known)}", nearest)
        elif key in self._entries:
            self.report.add(offset, f"key {shown(key)} is given twice in {self.title}")
        else:
            self._entries[key] = (offset, value_node)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def items(self) -> Iterator[tuple[str, int, yaml.Node]]:
        """Key, the key's offset, and the value's node, in file order."""
        for key, (offset, node) in self._entries.items():
            yield key, offset, node

    def value_offset(self, key: str) -> int:
        """Where the value of a key stands; the section itself if there is no such key."""
        return self._entries[key][1].start_mark.index if key in self._entries else self.offset

    def node(self, key: str, required: bool = True) -> yaml.Node | None:
        """The value's node, or None: if it is required that is a mistake."""
        if key in self._entries:
            return self._entries[key][1]
        if required and key not in self._misspelt:
            self.report.add(self.offset, f"key '{key}' is missing in {self.title}")
        return None

    def read(self, key: str, convert: Callable[[str], T], default: T | None = None, required: bool = True) -> T | None:
        """The converted value; the default if the key is optional and absent; None after a mistake."""
        node = self.node(key, required)
        if node is None:
            return default
        return read_scalar(self.report, node, f"'{key}' in {self.title}", convert)


def read_scalar(report: Report, node: yaml.Node, title: str, convert: Callable[[str], T]) -> T | None:
    """A plain value, converted; None after a mistake."""
    offset = node.start_mark.index
    if not isinstance(node, yaml.ScalarNode):
        report.add(offset, f"{title} is not a plain value", "one value")
        return None
    if not node.value.strip():
        report.add(offset, f"{title} has no value")
        return None
    try:
        return convert(expand_variables(node.value))
    except UnreadableError as error:
        report.add(offset, f"{title}: {error.message}", error.expected, error.nearest)
        return None


def compose(report: Report) -> yaml.Node | None:
    """The root node of the report's file; None after a mistake."""
    try:
        root = yaml.compose(report.source.text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        report.add(mark.index if mark else 0, f"not valid YAML: {problem}")
        return None
    except yaml.reader.ReaderError as error:
        report.add(int(error.position), f"not valid YAML: {error.reason}")
        return None
    except (RecursionError, ValueError):
        report.add(0, "not valid YAML: nested too deeply or malformed")
        return None
    if root is None:
        report.add(0, "the file is empty", "a pipeline: name, owner, start, interval, tick, horizon, streams …")
    return root
