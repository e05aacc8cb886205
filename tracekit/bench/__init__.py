"""Configurations of models measured beside each other: a grid of runs, one row each."""
