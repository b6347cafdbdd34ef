"""The picture of ``tidegate explain --warehouse``: memory × wait → accuracy."""

from __future__ import annotations

import numpy as np

from tidegate.cli.trade_off import TradeOff, render


def trade_off() -> TradeOff:
    return TradeOff(
        query="count",
        promise="ACCURACY 90 %",
        least=0.9,
        slacks_s=(0.0, 600.0),
        budgets_bytes=(2048.0, 1024.0),
        accuracy=np.array([[0.5, 0.96], [0.0, 0.4]]),
        slack_s=600.0,
        budget_bytes=2048.0,
    )


def test_what_is_in_force_is_marked_and_so_is_what_keeps_the_promise() -> None:
    title, _, header, ample, short = render(trade_off()).splitlines()
    assert title.strip() == "count: ACCURACY 90 %"
    assert header.split() == ["memory", "\\", "wait", "0", "s", "[10", "min]"]
    assert ample.split() == ["[2", "KiB]", "▅▅", "50%", "██", "96%*"]
    assert short.split() == ["1", "KiB", "-", "▄▄", "40%"]
    assert len({len(line.rstrip("]* ")) for line in (header, ample)}) <= 2
