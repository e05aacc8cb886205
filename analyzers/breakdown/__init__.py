"""Sums of work: layers, ops, kernels, phases, steps, and how much of it is covered."""
