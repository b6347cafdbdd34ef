"""Aggregates in groups over sliding windows, beside DuckDB's best form."""
