"""Reads memory snapshots of PyTorch: what was allocated, by which code, and the peak."""
