"""Read counters of Nsight Compute, turn them into FLOPs and bytes, and match them to the kernels of a trace."""
