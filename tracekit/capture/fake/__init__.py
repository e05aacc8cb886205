"""Runs of a model without its GPU: ops are recorded from fake tensors as CUDA would launch them."""
