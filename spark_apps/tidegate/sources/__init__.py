"""What arrived: files, cut into pieces, parsed and judged. Knows no query, no table but the shape of a tuple, no Spark."""
