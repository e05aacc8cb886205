"""Counts the work of each step: launches, copies, synchronisations, graph breaks, FLOPs, bytes."""
