"""The published methods by name: choose one and start it."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from infra.research.published.top_k.adaptive import Adaptive
from infra.research.published.top_k.buffered import AqKSlack, KSlack, MpKSlack
from infra.research.published.top_k.method import Method
from infra.research.published.top_k.mintopk import GsTopK, MinTopK, MinTopKLater
from infra.research.published.top_k.query import Options, Query
from infra.research.published.top_k.skyband import Sma, SmaLater

METHODS: Mapping[str, type[Method]] = {
    method.NAME: method
    for method in (Sma, SmaLater, MinTopK, MinTopKLater, GsTopK, KSlack, MpKSlack, AqKSlack, Adaptive)
}


def start(name: str, query: Query, window: int, options: Options | None = None) -> Method:
    """The state of a method before any tuple.

    Args:
        name: of ``METHODS``.
        query: what to answer.
        window: the first to answer; tuples of slides before it are late from the start.
        options: what can be set; the paper's experiment by default.

    Raises:
        ValueError: no such method; the message names the nearest.

    >>> from infra.research.published.top_k import arrivals, run, windows_of
    >>> query, stream = Query(20, 10, 1), arrivals([3, 12, 9], [3, 12, 16], [1.0, 2.0, 9.0], "abc")
    >>> windows = windows_of(query, stream)
    >>> [[one.ids for one in run(start(name, query, windows[0]), stream, windows)] for name in ("MINTOPK", "GSTOPK")]
    [[('a',), ('b',)], [('a',), ('c',)]]
    """
    if name not in METHODS:
        near = get_close_matches(name.upper(), METHODS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no published method {name!r}, of {', '.join(METHODS)}{hint}")
    return METHODS[name](query, window, options or Options())
