"""The past: samples and leaves on disk, and the questions that they answer."""
