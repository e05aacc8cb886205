"""The chapters of docs/results.md: what was predicted, and what came out."""
