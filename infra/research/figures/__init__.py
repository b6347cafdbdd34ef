"""The papers' figures, drawn anew with Tidegate: PNG, and the numbers as CSV.

See ``python -m infra.research.figures --help``.
"""
