"""Mutated traces: whatever is done to a file, reading it is an answer or a sentence, and losses are reported.

`python -m tests.fuzz --count 10000` runs many, `--seed N --count 1` one again. `tests/fuzz/test_fuzz.py` runs a few.
"""
