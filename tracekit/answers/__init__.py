"""Analyzes, compares and predicts runs from their files."""
