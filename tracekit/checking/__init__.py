"""Saves baselines by name, and judges runs against them."""
