"""Measured kernel times: our own of an H200, and public ones."""
