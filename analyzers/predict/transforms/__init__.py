"""Changes of an op list that several optimizations share: other precision, batch size, fused kernels, fewer bytes."""
