"""More sequences a step: the weights are read once for all of them."""

from dataclasses import replace

import pandas as pd

from analyzers.costs.call import Attention, Cost, Gemm
from analyzers.prediction.baseline import Baseline
from tracekit.optimizations.base import Optimization, Outcome, percent, share
from tracekit.optimizations.retime import retimed

FACTOR = 8
"""The growth of the batch that is predicted."""


class Batching(Optimization):
    id = "batching"
    title = f"A batch {FACTOR} times as large"
    work_factor = float(FACTOR)
    caveats = ("Throughput, not latency: each step takes longer, and a request waits for its batch.",)

    def objection(self, base: Baseline) -> str | None:
        capture = base.source.capture
        if capture is None or not capture.batch_size:
            return "The trace does not say what its batch is."
        if capture.peak_memory_bytes and _memory(base) > base.gpu.memory_bytes:
            return f"A batch {FACTOR} times as large needs {_memory(base) / 1e9:.0f} GB; {base.gpu.name} has less."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        return retimed(base.ops, _enlarged, base.gpu, outcome)

    def reason(self, base: Baseline) -> str:
        weights = base.ops.cost.map(lambda cost: bool(cost) and cost.weight_bytes > cost.bytes / 2).astype(bool)
        idle = max(0.0, 1 - base.busy_ns / base.latency_ns)
        return (
            f"The GPU is idle {percent(idle)} of the step, and {percent(share(base, weights))} of its busy time "
            "reads weights: both are paid once a batch."
        )

    def how_to(self, base: Baseline) -> str:
        capture = base.source.capture
        assert capture is not None
        return f"tracekit profile --model {capture.model} --batch-size {capture.batch_size * FACTOR}  # to see it"


def _memory(base: Baseline) -> int:
    capture = base.source.capture
    return capture.weight_bytes + FACTOR * (capture.peak_memory_bytes - capture.weight_bytes) if capture else 0


def _enlarged(cost: Cost) -> Cost:
    shape = cost.shape
    if isinstance(shape, Gemm):
        shape = replace(shape, m=shape.m * FACTOR) if cost.weight_bytes else replace(shape, batch=shape.batch * FACTOR)
    elif isinstance(shape, Attention):
        shape = replace(shape, batch=shape.batch * FACTOR)
    return replace(
        cost,
        flops=cost.flops * FACTOR,
        read_bytes=cost.weight_bytes + FACTOR * (cost.read_bytes - cost.weight_bytes),
        write_bytes=cost.write_bytes * FACTOR,
        shape=shape,
    )
