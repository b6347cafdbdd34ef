"""Random queries of the whole language over random streams, beside DuckDB."""
