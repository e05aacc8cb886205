"""A run's folder: its files, how they are written and read."""
