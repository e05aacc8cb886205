"""Serving a stream of requests: what an engine would give, by the models of kernels and host."""
