"""Reads and writes the files in a run's folder."""
