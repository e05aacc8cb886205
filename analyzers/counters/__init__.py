"""Reads counters of Nsight Compute, converts them to FLOPs and bytes, and matches them to the kernels of a trace."""
