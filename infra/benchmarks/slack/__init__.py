"""How well K is calibrated: Tidegate's controller beside one that knows the law of the delays."""
