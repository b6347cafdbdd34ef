"""Streams that come through Spark's Structured Streaming: into ``landed_<stream>``, each record once."""
