"""A query on the tables' files: which windows, under which plans and slacks, in which slices."""
