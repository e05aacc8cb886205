"""What tracekit was measured by, and what was measured: `python -m benchmarks` lists the experiments."""
