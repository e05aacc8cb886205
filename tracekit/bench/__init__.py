"""Measure a grid of models and configurations, one row per run."""
