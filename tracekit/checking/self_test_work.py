"""Times fixed work on a CPU for `self_test`, in a process of its own, and prints the times of steps and parts as JSON.

It imports nothing of tracekit, so that the process starts quickly.
"""

import json
import sys
import time

import numpy as np

_SIZE, _PARTS = 160, 8


def main(steps: int) -> None:
    """Time steps of equal parts, each a matrix product and a sum."""
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
