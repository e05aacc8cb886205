"""Fits the constants of the kernel time model, and writes them into their file."""
