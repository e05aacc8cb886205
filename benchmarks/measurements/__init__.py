"""Kernel times that somebody measured: our own of an H200, and the public ones."""
