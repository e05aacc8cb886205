"""Sums the work by layer, op, kernel, phase and step."""
