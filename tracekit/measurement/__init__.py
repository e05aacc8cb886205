"""Measuring what was predicted: a model with an optimization applied, beside the same model without."""
