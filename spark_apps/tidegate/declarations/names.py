"""Names that a pipeline may give to streams, columns, aliases and answers.

Names compare without regard to letter case, as they do in Spark SQL. A name is refused only where it would clash: with
the columns that Tidegate itself adds to a table, or with the grammar.
"""

from __future__ import annotations

import re

MAX_NAME = 63
# Schemes of URIs that name object stores.
STORES = ("s3", "gs", "abfs", "abfss")
NO_KEYS = "a URI holds no keys: give them by the environment (AWS_PROFILE, or AWS_ACCESS_KEY_ID and its secret)"

PARTITION_COLUMN = "interval"
# Columns that every events_<stream> table has; a declared column may be called so only if it is that very column.
EVENT_COLUMNS = ("event_id", "event_time", "arrival_time")
# The tuple's id in events_<stream> and in a top-k query's answers; always text, whatever the type of the declared id.
ID_COLUMN = "event_id"
# Columns that history_samples_<stream> puts beside a tuple's own.
SAMPLE_COLUMNS = ("leaf_start", "u", "fraction", "weight")
# Columns that answers_<query> and truth_<query> put beside the query's own.
ANSWER_COLUMNS = (
    "window_start", "window_end", "emitted_at", "width_s", "range_s", "coverage", "support_level", "slack_s",
    "accuracy_expected", PARTITION_COLUMN,
)  # fmt: skip
TOP_K_COLUMNS = ("rank", ID_COLUMN)

# Columns that corrections_<query> puts beside the answer's keys, and what it calls each of the answer's other columns.
CORRECTION_COLUMNS = ("window_end", "emitted_at", "known_at")
CORRECTED = ("{}_answered", "{}_true", "{}_difference")

# Columns that every landed_<stream> table has, beside those of its source.
LANDED_COLUMNS = ("batch", "landed_at", "arrival", "source", "generation", "partition", "position")
_LANDED_NAMES = frozenset((*LANDED_COLUMNS, "day"))

# Columns that updates_<query> puts beside those of its answers.
UPDATE_COLUMNS = ("revision", "kind", "deleted")

CLAUSES = ("ERROR", "ACCURACY", "EVERY", "DURATION", "PRIORITY", "EMIT")
# Clauses that are one only with the words that follow, so that they may name an alias, too.
CLAUSES_OF_SEVERAL_WORDS = ("EMIT",)

# Words that cannot stand as a bare name in an expression or after FROM.
_RESERVED_WORDS = """
    all and anti any as asc between by case cast cross current_date current_timestamp current_user desc distinct div
    else end except exists false fetch for from full glob group having if ilike in inner insert intersect interval into
    is join lateral left like limit minus natural not null offset on or order outer qualify rlike right select semi
    session_user then true try_cast union unnest using values when where window with
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())


def landed_name(name: str) -> str:
    """What ``landed_<stream>`` calls a column of a source of Spark: no two are called the same.

    >>> landed_name("price"), landed_name("Source"), landed_name("source_")
    ('price', 'Source_', 'source__')
    """
    return f"{name}_" if name.rstrip("_").lower() in _LANDED_NAMES else name


def source_name(name: str) -> str | None:
    """What a source of Spark calls a column of ``landed_<stream>``; None: it is none of the source's.

    >>> source_name("price"), source_name("Source_"), source_name("source"), source_name(landed_name("day_"))
    ('price', 'Source', None, 'day_')
    """
    if name.rstrip("_").lower() not in _LANDED_NAMES:
        return name
    return name[:-1] if name.endswith("_") else None


def is_reserved(name: str) -> bool:
    """Whether a bare name would be read as a word of the query language."""
    return name.lower() in _RESERVED


def refusal(name: str, what: str) -> tuple[str, str] | None:
    """Why a name cannot be used for ``what`` ('column', 'alias' …) and what was expected, or None if it can.

    A column may be called by a word of the query language, and is then written in backticks there; but for the one that
    the partitions of tables are called.

    >>> refusal("order", "column") is None, refusal("order", "alias")[0]
    (True, "'order' is a reserved word and cannot name an alias")
    """
    expected = "letters, digits and underscores, a letter first, at most 63 characters"
    short = name if len(name) <= MAX_NAME else name[:MAX_NAME] + "..."
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", name):
        return f"'{short}' cannot name {_article(what)}", expected
    if is_reserved(name) and (what != "column" or name.lower() == PARTITION_COLUMN):
        return f"'{name}' is a reserved word and cannot name {_article(what)}", "another name"
    return None


def identifier_refusal(name: str, what: str) -> tuple[str, str] | None:
    """Like `refusal`, for names that become table and folder names: lower snake case."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name):
        short = name if len(name) <= MAX_NAME else name[:MAX_NAME] + "..."
        expected = "lower snake case: a-z, 0-9 and _, a letter first, at most 63 characters"
        return f"'{short}' cannot name {_article(what)}", expected
    return refusal(name, what)


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun}"
