"""The op calls that measure_kernels.py times: one module a family, each a generator of cases."""
