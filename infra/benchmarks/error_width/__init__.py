"""How well the learnt slack widths keep their promise: real departures through the seasons, and synthetic streams."""
