"""The checks of benchmarks/smoke.py: their table, the numbers that they must give, and how one is run."""
