"""Finds the traces of a job's ranks, and reads them in several processes."""
