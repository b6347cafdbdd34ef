"""NEXMark's windowed queries as a pipeline, beside DuckDB, Flink SQL and Spark Structured Streaming."""
