"""Fits memory-bound kernels and convolutions, [memory.*] and [convolution] in analyzers/cost/time/constants.toml.

    python -m benchmarks fitting.memory [--shared DIRECTORY] [--dry-run]

On our own kernel times of an H200, of an H100 (batch norms, scans of columns) and, where DIRECTORY has them, NeuSight's
fp32 kernels of T4, V100 and A100. Each GPU weighs the same. Convolutions: 36 forward passes of ResNet-50's and ViT's
layers on an H200, fp32 (in TF32) as they come, bf16 with channels last.
"""

from collections import defaultdict
from collections.abc import Iterator

from benchmarks.fitting.constants import Asked, arguments, fit_and_write
from benchmarks.measurements import own, public
from benchmarks.measurements.own import Row
from tracekit.analyzers.cost.time import estimate
from tracekit.analyzers.cost.time.memory_bound import kind

_NOT_FITTED = ("l2",)
_L2_STREAMS = 2
GIVEN = ("threads", "passes", "overlap")


def main() -> None:
    asked = arguments(__doc__)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in measured(asked):
        groups[kind(row.cost)].append(row)
    groups["copy"] += groups["pointwise"]
    streams = [row for row in groups["copy"] if row.cost.bytes < _L2_STREAMS * row.gpu.l2_bytes]
    fit_and_write("memory.l2", streams, lambda row: row.gpu.id, writes=asked.write)
    for name in estimate.constants()["memory"]:
        if name not in _NOT_FITTED and groups[name]:
            fit_and_write(f"memory.{name}", groups[name], lambda row: row.gpu.id, GIVEN, asked.write)
    convolutions = [row for row in own.rows() if row.cost.family == "convolution"]
    fit_and_write("convolution", convolutions, lambda row: row.gpu.id, writes=asked.write)


def measured(asked: Asked) -> Iterator[Row]:
    yield from (row for row in own.rows(own.SEQUENCES, "h100") if row.family in ("norm", "reduction, scan-columns"))
    yield from (row for row in own.rows() if is_memory_bound(row) and row.label not in own.NAIVE)
    if asked.shared.is_dir():
        rows = public.fp32(public.folder(asked.shared), 200, 1)
        yield from (row for row in rows if is_memory_bound(row) and not row.gpu.is_estimated)


def is_memory_bound(row: Row) -> bool:
    return row.cost.family not in ("gemm", "attention", "convolution")


if __name__ == "__main__":
    main()
