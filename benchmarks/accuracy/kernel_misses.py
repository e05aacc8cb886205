"""The largest errors of the kernel time model, and their causes."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from measurements.row import Row

from accuracy.chapter import percent, table
from tracekit.analyzers.cost import estimate_ns

_WORST = 12
_CAUSES = {
    "int8_weight": "aten::_weight_int8pack_mm has no tuned kernel for GPUs; nothing that tracekit recommends calls it",
    "efficient_decode": "one CTA per head processes all keys; several on one multiprocessor overlap",
    "fp8_rowwise": "a CUTLASS kernel without split-K: with few rows, its time depends on the depth, 2.6 ns per element",
    "cudnn_prefill": "up to 512 tokens: the start and the first tiles",
    "gather_expanded": "a single row is not expanded: its kernel processes one element at a time",
    "adamw_foreach": "for short lists, each op finds the output of the previous one in the L2",
    "efficient_masked": "reading the mask is not modelled separately",
}


def worst(rows: Sequence[Row]) -> str:
    """Return the measured labels with the largest mean error on our H200."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        groups[row.label].append(estimate_ns(row.cost, row.gpu) / row.nanoseconds)
    ranked = sorted(groups.items(), key=lambda item: -float(np.mean(np.abs(np.array(item[1]) - 1))))[:_WORST]
    lines = [
        (
            label,
            len(ratios),
            percent(float(np.mean(np.abs(np.array(ratios) - 1)))),
            f"{np.median(ratios):.2f}",
            _CAUSES.get(label, ""),
        )
        for label, ratios in ranked
    ]
    return table(("measured as", "op calls", "mean error", "median ratio", "cause"), lines, 0)
