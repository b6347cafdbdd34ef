"""The papers' figures, drawn anew with Tidegate: PNG, and the numbers as CSV. ``python -m infra.figures --help``."""
