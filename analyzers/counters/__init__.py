"""Measured counters of Nsight Compute: read, turned into FLOPs and bytes, and matched to the kernels of a trace."""
