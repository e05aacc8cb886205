"""Fused Triton kernels: templates, and how they are written for a run, checked, timed and applied to a model."""
