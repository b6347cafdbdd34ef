"""What arrived: files, cut into pieces, parsed and judged. Knows no query, no Spark; of tables, a tuple's shape."""
