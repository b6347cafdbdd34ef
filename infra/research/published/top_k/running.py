"""A method over a stream: when arrivals are taken in and windows are answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from infra.research.published.top_k.method import Method
from infra.research.published.top_k.query import Answer, Arrival, Query


def windows_of(query: Query, stream: Sequence[Arrival]) -> range:
    """The windows to answer: from the first that holds a tuple to the one that the last tuple's slide ends.

    >>> from infra.research.published.top_k.query import arrivals
    >>> windows_of(Query(20, 10, 1), arrivals([12, 35], [50, 40], [1.0, 1.0], "ab"))
    range(1, 4)
    """
    if not stream:
        return range(0)
    events_us = [one.event_us for one in stream]
    return range(min(events_us) // query.slide_us, max(events_us) // query.slide_us + 1)


def run(method: Method, stream: Sequence[Arrival], windows: range) -> Iterator[Answer]:
    """Feed the stream to a method that was started at the first window, and answer every window.

    A window is answered at the first instant at which its end lies K back and all windows before it are answered, K as
    it then is. Tuples that arrive at that very instant are in, as with the production operator.
    """
    pending, clock_us = iter(windows), -1
    window = next(pending, None)
    for one in stream:
        while window is not None:
            due_us = max(method.query.end_us(window) + method.slack_us, clock_us)
            if due_us >= one.arrival_us:
                break
            yield _answered(method, window, due_us)
            window, clock_us = next(pending, None), due_us
        method.absorb(one)
        clock_us = one.arrival_us
    while window is not None:
        due_us = max(method.query.end_us(window) + method.slack_us, clock_us)
        yield _answered(method, window, due_us)
        window, clock_us = next(pending, None), due_us


def _answered(method: Method, window: int, emit_us: int) -> Answer:
    slack_us = method.slack_us
    return Answer(window, method.query.end_us(window), emit_us, slack_us, method.answer(emit_us))
