"""What the benchmarks against rivals have in common: processes, their measuring, tables, sessions, data on disk."""
