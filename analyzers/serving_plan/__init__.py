"""Simulates a serving engine with continuous batching and a paged KV cache."""
