"""A backfill of the flights through a real scheduler: how long it takes, and how much of that is not work."""
