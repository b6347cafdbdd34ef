"""Are promises kept, at which wait, and is what is expected what is measured? Replayed over real streams and laws."""
