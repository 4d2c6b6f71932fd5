"""Run an engine in its own environment and read its evidence."""
