"""Slow PyTorch scripts with one planted cause each: the first advice for their traces, and what the fix gained."""
