"""Measures a model with an optimization beside the same model without it."""
