"""The ranks of one job: a summary of each, their collectives matched, their clocks aligned, and who waits for whom."""
