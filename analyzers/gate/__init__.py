"""Judges whether a run is slower than its baseline: times by intervals over repeats, counters exactly."""
