"""Where the model of kernels is worst, and why."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from measurements.row import Row

from accuracy.chapter import percent, table
from analyzers.kernel_time import estimate_ns

_WORST = 12
_CAUSES = {
    "int8_weight": "aten::_weight_int8pack_mm has no tuned kernel for GPUs; nothing that tracekit recommends calls it",
    "sort": "13 to 22 kernels, whose number depends on the row's length",
    "topk": "13 to 22 kernels, whose number depends on the row's length",
    "cross_entropy": "the mean over targets runs in one block; its two kernels have one constant",
    "cumsum": "one of two kernels by the row's length; eight rows of data",
    "gather_one": "a few scattered elements: latency of the page table, which no constant covers",
    "efficient_decode": "a CTA a head walks the keys alone; more than one on a multiprocessor overlap",
    "zero_grads": "counted as read and written; two rows",
    "fp8_rowwise": "a CUTLASS kernel without split-K: at few rows its time is the depth's, 2.6 ns an element",
    "rms_norm": "one constant for rows of all lengths",
    "cudnn_prefill": "up to 512 tokens; the start and the first tiles",
    "efficient_masked": "reading the mask is not modelled apart",
    "softmax": "three kernels by the row's length, whose limits differ by type",
    "softmax_bwd": "two kernels by the row's length",
    "conv2d": "modelled as products of its unrolled windows; cuDNN transforms layouts around fp32 convolutions",
    "embedding": "up to 16 indices take another kernel, which goes through them one after the other",
    "index_select": "up to 16 indices take another kernel, which goes through them one after the other",
}


def worst(rows: Sequence[Row]) -> str:
    """The measured labels with the largest mean error on our H200."""
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
