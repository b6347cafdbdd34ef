"""What the words in a column's name say about its values."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidegate.declarations.models import PathStep


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TIMES = _words(
    """time timestamp ts tstamp date datetime dt at created updated modified when epoch occurred received sent ingested
    arrived arrival event_time start started end ended begin pickup dropoff day stamp t utc zeit datum uhrzeit zeitpunkt
    zeitstempel fecha hora heure horodatage data ora sqldate dateadded"""
)
ARRIVALS = _words(
    """received recv receive ingested ingest ingestion arrived arrival sent reported loaded server processed stored
    published inserted logged collected recorded dateadded eingang empfangen"""
)
EVENTS = _words(
    """event occurred created happened placed pickup started start begin observed measured departed landed trade traded
    order ordered departure dep transaction click reading captured timestamp ts time at"""
)
LATER = _words("updated modified dropoff end ended expires expiry deleted closed finished due delivery scheduled")
"""Times that belong to what became of a thing, not to when a record of it arrived."""
IDS = _words("id ids uuid guid oid key nr no number num ref reference code sha hash ticket identifier nummer")
PARTS = _words(
    """line item seq sequence sequenz part position pos row idx index offset order orderid version lsn order_line
    lineitem batch page step n"""
)
"""Words of columns that identify a record together with others."""
DEVICES = _words(
    """device sensor vehicle meter machine station probe node imei mac gateway thing unit detector camera mmsi
    bus"""
)
"""Things that report one record at a time."""
MONEY = _words(
    """price amount fare total cost fee fees tip toll tolls tax revenue balance paid charge surcharge discount salary
    net gross preis betrag summe umsatz subtotal spend payment refund"""
)
SUMS = MONEY - {"price", "preis", "balance"} | _words(
    "bytes quantity qty count size volume units menge anzahl clicks views distance energy kwh items passengers"
)
"""Numbers that are worth adding."""
MEANS = _words(
    """price temperature temp temperatur humidity pressure speed latency duration delay value rate score voltage current
    power load level usage cpu bid ask mid elapsed ms response preis wert mag magnitude quality age"""
)
"""Numbers whose mean is worth knowing."""
_OF_ITS_OBJECT = _words("$oid id key code no number")
"""Names that say nothing without that of the object that they are in."""
GROUPS = _words(
    """type kind status level category channel symbol pair country region currency vendor station sensor device machine
    host method op action severity state event product origin city ort line_status side route"""
)
"""Columns that people group by."""
PLACES = _words("lat latitude lon lng long longitude x y z zip zipcode postcode plz phone port year month")
"""Numbers that are neither added nor averaged."""


def words_of(path: Iterable[PathStep]) -> frozenset[str]:
    """The words of the names on a path's last object, lower case.

    >>> sorted(words_of(("actor", "createdAt"))), sorted(words_of(("_id", "$oid"))), sorted(words_of(("VendorID",)))
    (['at', 'created'], ['id', 'oid'], ['id', 'vendor'])
    """
    names = [step for step in path if isinstance(step, str) and (not step.startswith("$") or step == "$oid")]
    last = names[-1:]
    if len(names) > 1 and names[-1].lower() in _OF_ITS_OBJECT:
        last = names[-2:]
    return frozenset(word for name in last for word in split(name))


def split(name: str) -> list[str]:
    """The words of one name.

    >>> split("tpep_pickup_datetime"), split("eventTimeMS"), split("orderid")
    (['tpep', 'pickup', 'datetime'], ['event', 'time', 'ms'], ['order', 'id'])
    """
    spaced = re.sub(r"(?<=[a-zäöü0-9])(?=[A-ZÄÖÜ])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    words = [word.lower() for word in re.findall(r"[^\W\d_]+", spaced)]
    return [part for word in words for part in _joined(word)]


_TAILS = ("datetime", "timestamp", "time", "date", "id", "amount", "at")
_HEADS = _words(
    """order line trade user customer event trip vendor session device sensor message msg transaction item product
    station vehicle start end begin created updated pickup dropoff sent received ingest arrival up sql run"""
)


def _joined(word: str) -> list[str]:
    """A word of two that were written without a gap."""
    for tail in _TAILS:
        if word.endswith(tail) and word.removesuffix(tail) in _HEADS:
            return [word.removesuffix(tail), tail]
    return [word]
