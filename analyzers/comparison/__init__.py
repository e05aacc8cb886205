"""Compares two analyses: what takes more or less time in a step, and why."""
