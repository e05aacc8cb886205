"""Times fixed work for `self_test`, in a separate process, and prints the times of steps and parts as JSON.

    python self_test_work.py STEPS            # on a CPU
    python self_test_work.py STEPS cuda LOCK  # on a GPU, while it holds the lock of the file LOCK

It does not import tracekit, so that the process starts quickly.
"""

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

_PARTS, _WARM_UP = 8, 3
_CPU_SIZE = 160
_GPU_SIZE = 4096
"""Large enough that the GPU, not the launching host, takes the time."""
_GPU_WARM_UP = 20


def time_on_cpu(steps: int) -> list[list[float]]:
    """Time steps of equal parts, each a GEMM and a sum."""
    import numpy as np

    random = np.random.default_rng(0)
    arrays = [random.standard_normal((_CPU_SIZE, _CPU_SIZE)) for _ in range(_PARTS)]
    times: list[list[float]] = [[] for _ in range(_PARTS)]
    for step in range(steps + _WARM_UP):
        for part, array in enumerate(arrays):
            start = time.perf_counter_ns()
            np.tanh(array @ array / _CPU_SIZE).sum()
            if step >= _WARM_UP:
                times[part].append(time.perf_counter_ns() - start)
    return times


def time_on_gpu(steps: int, lock: str) -> list[list[float]]:
    """Time the same steps on the current GPU, by events. torch is imported before the lock is taken."""
    import fcntl

    import torch

    with Path(lock).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        torch.manual_seed(0)
        arrays = [torch.randn(_GPU_SIZE, _GPU_SIZE, device="cuda", dtype=torch.float16) for _ in range(_PARTS)]
        measured = [_gpu_step(torch, arrays) for _ in range(steps + _GPU_WARM_UP)][_GPU_WARM_UP:]
    return [list(times) for times in zip(*measured, strict=True)]


def _gpu_step(torch, arrays) -> list[float]:  # type: ignore[no-untyped-def]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(_PARTS + 1)]
    marks[0].record()
    for array, mark in zip(arrays, marks[1:], strict=True):
        torch.tanh(array @ array / _GPU_SIZE).sum()
        mark.record()
    torch.cuda.synchronize()
    return [1e6 * before.elapsed_time(after) for before, after in pairwise(marks)]


if __name__ == "__main__":
    print(
        json.dumps(time_on_gpu(int(sys.argv[1]), sys.argv[3]) if "cuda" in sys.argv else time_on_cpu(int(sys.argv[1])))
    )
