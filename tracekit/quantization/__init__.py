"""Weights of 4 or 8 bits in place of a model's linear layers, to run, to save, and to train adapters on."""
