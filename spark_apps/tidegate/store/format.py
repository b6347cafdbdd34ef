"""The number of a warehouse's format: whether this program may read what another version of it has written.

It is a property of the table ``_commits``, which every opening reads in any case: it costs no request, it is there as
soon as the table is, and whoever has the warehouse open sees it rise with the commit that follows.

Formats: 1, Delta tables and runs that commit (no number is written); 2, streams that landed (``landed_<stream>``,
``landings``, ``watermarks``) may be what an interval's records are read from. Whoever changes what older versions would
misread raises ``FORMAT``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidegate.declarations.errors import UserError
from tidegate.store.places import Place

FORMAT = 2
"""What this program writes; it reads all formats up to it."""
PROPERTY = "tidegate.format"
_WITHOUT = 1


def format_of(configuration: Mapping[str, str]) -> int:
    """The number among a table's properties; without one, that of the warehouses that bore none."""
    return int(configuration.get(PROPERTY, _WITHOUT))


def require_readable(configuration: Mapping[str, str], folder: Place) -> None:
    """UserError if ``_commits`` with these properties is of a format that only a newer program reads."""
    there = format_of(configuration)
    if there > FORMAT:
        raise UserError(
            f"{folder}: this warehouse was written by a newer Tidegate (format {there}; this one reads up to "
            f"{FORMAT}): use that version (pip install --upgrade tidegate), or run into another warehouse"
        )
