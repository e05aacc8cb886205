"""Fused Triton kernels: their templates, how they are written for a run, proved, timed and put in a model."""
