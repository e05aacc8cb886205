"""Writes the analysis of a job's ranks as text, JSON, a page, and traces for Perfetto."""
