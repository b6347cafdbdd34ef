"""The stages of an interval: one application each, and what starts them."""
