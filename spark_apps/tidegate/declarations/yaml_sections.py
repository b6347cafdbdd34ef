"""Mappings of a YAML file, read key by key with positions.

A section is closed: keys that it does not know, keys given twice and keys without a value are mistakes. Values are read
from the text as written (``1_000``, ``on`` and ``2013-01-01`` have no hidden meaning) by a converter that raises
`UnreadableError`. Environment variables are expanded in values, but where a secret may stand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import yaml

from tidegate.declarations.positions import Misspelt, Report
from tidegate.declarations.units import UnreadableError, shown
from tidegate.declarations.variables import check_variables, expand_variables

T = TypeVar("T")

MAX_DEPTH = 20
MAX_VALUES = 100_000
# libyaml's reader, without which PyYAML was hardly ever built, is six times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
UNPRINTABLE = yaml.reader.Reader.NON_PRINTABLE


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
            misspelt = Misspelt(key, [name for name in known if name not in self._entries])
            message = f"unknown key {shown(key)} in {self.title}"
            self._misspelt.add(self.report.add(offset, message, f"one of {', '.join(known)}", misspelt))
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

    def read(
        self,
        key: str,
        convert: Callable[[str], T],
        default: T | None = None,
        required: bool = True,
        expand: bool = True,
    ) -> T | None:
        """The converted value; the default if the key is optional and absent; None after a mistake."""
        node = self.node(key, required)
        if node is None:
            return default
        return read_scalar(self.report, node, f"'{key}' in {self.title}", convert, expand)


def read_scalar(
    report: Report, node: yaml.Node, title: str, convert: Callable[[str], T], expand: bool = True
) -> T | None:
    """A plain value, converted; None after a mistake. ``expand`` False: variables in it stay as they are written."""
    offset = node.start_mark.index
    if not isinstance(node, yaml.ScalarNode):
        report.add(offset, f"{title} is not a plain value", "one value")
        return None
    if not node.value.strip():
        report.add(offset, f"{title} has no value")
        return None
    try:
        check_variables(node.value)
        text = expand_variables(node.value) if expand else node.value
        if UNPRINTABLE.search(text):
            raise UnreadableError(f"{shown(text)} has a character that is not printable", "text")
        return convert(text)
    except UnreadableError as error:
        report.add(offset, f"{title}: {error.message}", error.expected, error.misspelt)
        return None


def compose(report: Report) -> yaml.Node | None:
    """The root node of the report's file; None after a mistake.

    **Cost**: microseconds a value. What is nested deeper, or with its aliases written out is larger, than a pipeline
    needs is a mistake.
    """
    composer = _Composer()
    try:
        for event in yaml.parse(report.source.text, Loader=_LOADER):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        report.add(mark.index if mark else 0, f"not valid YAML: {problem}")
        return None
    except yaml.reader.ReaderError as error:
        special = UNPRINTABLE.search(report.source.text)
        report.add(special.start() if special else 0, f"not valid YAML: {error.reason}")
        return None
    if composer.root is None:
        report.add(0, "the file is empty", "a pipeline: name, owner, start, interval, tick, horizon, streams …")
    return composer.root


class _Composer:
    """Makes nodes of events, without recursion: PyYAML's own composers take seconds for brackets in brackets, or crash.

    An alias is the very node that it names; of these there is none that holds itself.
    """

    def __init__(self) -> None:
        self.root: yaml.Node | None = None
        self._open: list[tuple[yaml.MappingNode | yaml.SequenceNode, str | None, int]] = []
        self._anchors: dict[str, tuple[yaml.Node, int]] = {}
        self._values = 0

    def take(self, event: yaml.Event) -> None:
        """The next event."""
        if isinstance(event, yaml.ScalarEvent):
            self._put(yaml.ScalarNode("", event.value, _mark(event)), 1, event)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise _mistake(f"found undefined alias {shown(event.anchor or '')}", event)
            self._put(*self._anchors[event.anchor], event)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._open) == MAX_DEPTH:
                raise _mistake(f"nested more than {MAX_DEPTH} levels deep", event)
            kind = yaml.MappingNode if isinstance(event, yaml.MappingStartEvent) else yaml.SequenceNode
            opened = kind("", [], _mark(event))
            self._put(opened, 1, event)
            self._open.append((opened, event.anchor, self._values))
        elif isinstance(event, yaml.CollectionEndEvent):
            node, anchor, before = self._open.pop()
            if isinstance(node, yaml.MappingNode):
                node.value = list(zip(node.value[::2], node.value[1::2], strict=True))
            if anchor:
                self._anchors[anchor] = node, self._values - before + 1
        elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            raise _mistake("expected a single document", event)

    def _put(self, node: yaml.Node, values: int, event: yaml.NodeEvent) -> None:
        """A node that stands for so many values, where it belongs."""
        self._values += values
        if self._values > MAX_VALUES:
            raise _mistake(f"more than {MAX_VALUES} values, aliases written out", event)
        if isinstance(event, yaml.ScalarEvent) and event.anchor:
            self._anchors[event.anchor] = node, 1
        if self._open:
            self._open[-1][0].value.append(node)
        else:
            self.root = node


def _mistake(problem: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=_mark(event))


def _mark(event: yaml.Event) -> Any:
    return event.start_mark
