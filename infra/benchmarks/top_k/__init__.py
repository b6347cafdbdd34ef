"""Top-k over sliding windows, measured."""
