"""Predictions beside measurements of the same run."""
