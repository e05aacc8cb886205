"""The chapters of docs/results.md: predictions beside measurements."""
