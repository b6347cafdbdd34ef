"""The documentation site: its pages (`hooks`), and the reference that is generated from the code (`reference`)."""
