"""The papers' methods as published, to compare with."""
