"""Measures the host time of a module range in µs: `python benchmarks/range_cost.py [--device cuda]`."""

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.profiler import profile

from tracekit.capture import NoRanges, ProfilerRanges, annotate

MODULES = 100
REPEATS = 200


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def best_us(model: nn.Module, x: torch.Tensor) -> float:
    """Return the microseconds of a module call: the fastest of five runs."""
    return min(_run_us(model, x) for _ in range(5))


def _run_us(model: nn.Module, x: torch.Tensor) -> float:
    start = time.perf_counter_ns()
    for _ in range(REPEATS):
        model(x)
    return (time.perf_counter_ns() - start) / 1e3 / REPEATS / MODULES


def profiled(measure: Callable[[], float]) -> float:
    with profile():
        return measure()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    model, x = nn.Sequential(*(Nothing() for _ in range(MODULES))), torch.ones(1, device=parser.parse_args().device)
    bare = best_us(model, x)
    bare_profiled = profiled(lambda: best_us(model, x))
    with annotate(model, NoRanges()):
        hooks = best_us(model, x)
    with annotate(model, ProfilerRanges()):
        ranges = best_us(model, x)
        ranges_profiled = profiled(lambda: best_us(model, x))
    print(f"module call, bare:           {bare:6.2f} us; under torch.profiler {bare_profiled:6.2f} us")
    print(f"hooks that emit nothing:    +{hooks - bare:6.2f} us")
    print(f"ranges, no profiler:        +{ranges - bare:6.2f} us")
    print(f"ranges, torch.profiler:     +{ranges_profiled - bare_profiled:6.2f} us")


if __name__ == "__main__":
    main()
