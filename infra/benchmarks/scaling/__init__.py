"""How stages scale: what slices and the driver cost, measured, and what follows for many workers."""
