"""Fitting the constants of the kernel time model, and writing them into the file that holds them."""
