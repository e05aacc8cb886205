"""Memory snapshots of PyTorch: what was allocated, where, and what the most was."""
