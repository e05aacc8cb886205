"""Readers of torch.profiler's JSON: in parallel chunks, or event by event where a file is damaged."""
