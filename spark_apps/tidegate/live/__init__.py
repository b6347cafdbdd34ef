"""Live mode: the same answers, as tuples come."""
