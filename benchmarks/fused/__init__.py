"""Timing of fused kernels alone, and of models that run them."""
