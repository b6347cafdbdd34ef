"""What Tidegate must answer, by brute force: DuckDB and plain Python, straight from the definitions.

Nothing here imports the operators, the hosts or the applications: only the declared models are shared.
"""
