"""The simulated hosts that the widths of intervals are fitted with."""

HOST_LOGS = (-1.4, -1.0, -0.7, -0.4, 0.4, 0.7, 1.0, 1.4)
"""Logarithms of their slowness, relative to the expected host."""
