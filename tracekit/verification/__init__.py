"""Compares predictions with measurements of the same run."""
