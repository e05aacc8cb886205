"""Analyzes the ranks of a job: summarizes each, matches their collectives, aligns their clocks, and finds who waits for
whom."""
