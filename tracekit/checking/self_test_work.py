"""Fixed work of a CPU, timed in a process of its own by `self_test`: prints the steps' and the parts' times as JSON.

It imports nothing of tracekit, so that a process starts quickly.
"""

import json
import sys
import time

import numpy as np

_SIZE, _PARTS = 160, 8


def main(steps: int) -> None:
    """Time steps of like parts: a product and a sum of arrays each."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((_SIZE, _SIZE)) for _ in range(_PARTS)]
    times: list[list[int]] = [[] for _ in range(_PARTS)]
    for step in range(steps + 3):
        for part, array in enumerate(arrays):
            start = time.perf_counter_ns()
            np.tanh(array @ array / _SIZE).sum()
            if step >= 3:  # the first ones warm up
                times[part].append(time.perf_counter_ns() - start)
    print(json.dumps(times))


if __name__ == "__main__":
    main(int(sys.argv[1]))
