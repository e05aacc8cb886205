"""The op calls that measure_kernels.py times: one module per family, each with a generator of cases."""
