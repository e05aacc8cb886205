"""Predicts how a serving engine handles a stream of requests, from models of kernels and host."""
