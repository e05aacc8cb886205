"""The hosts on which a step is simulated to measure how wide intervals must be."""

HOST_LOGS = (-1.4, -1.0, -0.7, -0.4, 0.4, 0.7, 1.0, 1.4)
"""Logarithms of how many times as slow they are."""
