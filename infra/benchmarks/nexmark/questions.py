"""The windowed queries of NEXMark: as Tidegate is asked them, and as SQL over all accepted events has the answers.

Windows are stated here where NEXMark leaves them to time since the beginning: a day is ten minutes, and what was last
is looked for in them.
"""

from __future__ import annotations

from dataclasses import dataclass

# Of prices, in cents.
_BANDS = {"rank1": "price < 10000", "rank2": "price >= 10000 AND price < 1000000", "rank3": "price >= 1000000"}
_COUNTED = {"bids": "*", "bidders": "DISTINCT bidder", "auctions": "DISTINCT auction"}


def _counts(name: str) -> str:
    counted = _COUNTED[name]
    bands = [f"COUNT({counted}) FILTER (WHERE {where}) AS {band}_{name}" for band, where in _BANDS.items()]
    return ", ".join([f"COUNT({counted}) AS total_{name}", *bands])


def _names(*counted: str) -> tuple[str, ...]:
    return tuple(f"{band}_{name}" for name in counted for band in ("total", *_BANDS))


def statistics() -> str:
    """The columns of queries 15 and 16."""
    return ", ".join(map(_counts, _COUNTED))


def by_auction() -> str:
    """The columns of query 17."""
    return f"{_counts('bids')}, MIN(price) AS least, MAX(price) AS most, AVG(price) AS mean, SUM(price) AS total"


_STATISTICS, _BY_AUCTION = statistics(), by_auction()
_ROWS = "SELECT window_end, * EXCLUDE (window_start, window_end) FROM"
_BIDS_IN_WINDOW = """w.window_start, w.window_end FROM windows AS w
    JOIN bids AS b ON date_time >= w.window_start AND date_time < w.window_end"""


@dataclass(frozen=True)
class Question:
    """A query of NEXMark.

    ``text``: as ``queries/<name>.sql`` has it. ``range_s``, ``every_s``: its windows, unless they are sessions.
    ``columns``: what its rows are compared by. ``sql``: the same rows of every window by DuckDB, from the tables
    ``persons``, ``auctions`` and ``bids`` and ``windows`` (window_start, window_end); ``window_end`` comes first, then
    ``columns``.
    """

    text: str
    range_s: int
    every_s: int
    columns: tuple[str, ...]
    sql: str


def _ranked(columns: str, within: str, order: str, limit: int) -> str:
    """The rows of each window and partition up to a rank, with ties."""
    return f"""SELECT window_end, {columns} FROM (
        SELECT b.*, w.window_end, RANK() OVER (PARTITION BY w.window_end{within} ORDER BY {order}) AS place
        FROM windows AS w JOIN bids AS b ON date_time >= w.window_start AND date_time < w.window_end
        ) WHERE place <= {limit}"""


QUESTIONS = {
    "q5_hot_items": Question(
        """SELECT auction, COUNT(*) AS num FROM bids [10 SECONDS]
        GROUP BY auction ORDER BY num DESC LIMIT 1 EVERY 2 SECONDS""",
        10,
        2,
        ("auction", "num"),
        f"""SELECT window_end, auction, num FROM (
            SELECT auction, COUNT(*) AS num, RANK() OVER (PARTITION BY w.window_end ORDER BY COUNT(*) DESC) AS place,
            {_BIDS_IN_WINDOW} GROUP BY auction, w.window_start, w.window_end) WHERE place = 1""",
    ),
    "q7_highest_bid": Question(
        "SELECT auction, bidder, price FROM bids [10 SECONDS] ORDER BY price DESC LIMIT 1 EVERY 10 SECONDS",
        10,
        10,
        ("auction", "bidder", "price"),
        _ranked("auction, bidder, price", "", "price DESC", 1),
    ),
    "q8_new_sellers": Question(
        """SELECT p.person, p.name FROM persons [10 SECONDS] AS p, auctions [10 SECONDS] AS a
        WHERE p.person = a.seller GROUP BY p.person, p.name EVERY 10 SECONDS""",
        10,
        10,
        ("person", "name"),
        """SELECT DISTINCT w.window_end, p.person, p.name FROM windows AS w
        JOIN persons AS p ON p.date_time >= w.window_start AND p.date_time < w.window_end
        JOIN auctions AS a ON a.date_time >= w.window_start AND a.date_time < w.window_end AND a.seller = p.person""",
    ),
    "q11_sessions_of_bidders": Question(
        """SELECT bidder, COUNT(*) AS n FROM bids [RANGE 20 MINUTES]
        GROUP BY bidder, session_window(date_time, '10 seconds')""",
        600,
        10,
        ("window_start", "bidder", "n"),
        """SELECT MAX(date_time) + INTERVAL 10 SECONDS AS window_end, MIN(date_time) AS window_start, bidder,
            COUNT(*) AS n
        FROM (SELECT *, COUNT(*) FILTER (WHERE begins) OVER (PARTITION BY bidder ORDER BY date_time, id) AS run
            FROM (SELECT *, COALESCE(date_time - LAG(date_time) OVER (PARTITION BY bidder ORDER BY date_time, id)
                > INTERVAL 10 SECONDS, TRUE) AS begins FROM bids))
        GROUP BY bidder, run""",
    ),
    "q12_bids_of_bidders": Question(
        """SELECT bidder, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10' SECONDS))
        GROUP BY bidder, window_start, window_end""",
        10,
        10,
        ("bidder", "n"),
        f"SELECT window_end, bidder, n FROM (SELECT bidder, COUNT(*) AS n, {_BIDS_IN_WINDOW} GROUP BY ALL)",
    ),
    "q15_bidding_statistics": Question(
        f"SELECT {_STATISTICS} FROM bids [10 MINUTES] EVERY 10 MINUTES",
        600,
        600,
        _names(*_COUNTED),
        f"{_ROWS} (SELECT {_STATISTICS}, {_BIDS_IN_WINDOW} GROUP BY ALL)",
    ),
    "q16_statistics_of_channels": Question(
        f"""SELECT channel, {_STATISTICS}, MAX(date_time) AS newest FROM bids [10 MINUTES]
        GROUP BY channel EVERY 10 MINUTES""",
        600,
        600,
        ("channel", *_names(*_COUNTED), "newest"),
        f"""{_ROWS} (
            SELECT channel, {_STATISTICS}, MAX(date_time) AS newest, {_BIDS_IN_WINDOW} GROUP BY ALL)""",
    ),
    "q17_auction_statistics": Question(
        f"SELECT auction, {_BY_AUCTION} FROM bids [10 MINUTES] GROUP BY auction EVERY 10 MINUTES",
        600,
        600,
        ("auction", *_names("bids"), "least", "most", "mean", "total"),
        f"""{_ROWS} (
            SELECT auction, {_BY_AUCTION}, {_BIDS_IN_WINDOW} GROUP BY ALL)""",
    ),
    "q18_last_bid": Question(
        """SELECT bidder, auction, price, date_time FROM bids [10 MINUTES]
        QUALIFY ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) <= 1 EVERY 10 MINUTES""",
        600,
        600,
        ("bidder", "auction", "price", "date_time"),
        _ranked("bidder, auction, price, date_time", ", bidder, auction", "date_time DESC", 1),
    ),
    "q19_ten_best_bids": Question(
        """SELECT auction, bidder, price FROM bids [10 MINUTES]
        QUALIFY ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) <= 10 EVERY 10 MINUTES""",
        600,
        600,
        ("auction", "bidder", "price"),
        _ranked("auction, bidder, price", ", auction", "price DESC", 10),
    ),
    "q20_bids_of_a_category": Question(
        """SELECT b.auction, a.seller, COUNT(*) AS n, MAX(b.price) AS most
        FROM bids [1 MINUTE] AS b, auctions [1 MINUTE] AS a
        WHERE b.auction = a.auction AND a.category = 1 GROUP BY b.auction, a.seller EVERY 1 MINUTE""",
        60,
        60,
        ("auction", "seller", "n", "most"),
        """SELECT w.window_end, b.auction, a.seller, COUNT(*) AS n, MAX(b.price) AS most FROM windows AS w
        JOIN bids AS b ON b.date_time >= w.window_start AND b.date_time < w.window_end
        JOIN auctions AS a ON a.date_time >= w.window_start AND a.date_time < w.window_end AND a.auction = b.auction
        WHERE a.category = 1 GROUP BY ALL""",
    ),
}  # fmt: skip
