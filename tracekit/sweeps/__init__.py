"""Sweeps: predictions over a grid of GPUs, batch sizes, lengths and optimizations."""
