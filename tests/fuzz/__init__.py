"""Mutated traces: reading a damaged file gives a trace or an error for people, and reports what is lost.

`python -m tests.fuzz --count 10000` runs many, `--seed N --count 1` one again. `tests/fuzz/test_fuzz.py` runs a few.
"""
