"""Finds casts to fp32 of tensors that are already in fp32. In a 16-bit model, each of them launches a kernel."""

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.recorded_dims import recorded_dims

_FP32 = '["","6",'
"""Beginning of the recorded values of `aten::to` with fp32, whose number in PyTorch is 6, as its first argument."""


def idle_casts(host: pd.DataFrame) -> tuple[int, ...]:
    """Return the number of elements of each cast in these host rows that does nothing, by recorded shapes."""
    asks_for_fp32, is_fp32 = _begins_with(host["values"], _FP32), _begins_with(host["dtypes"], '["float"')
    casts = host[host.name.isin(["aten::to"]) & asks_for_fp32 & is_fp32]
    casts = casts[_empty(casts, host)]
    by_shapes = {shapes: _elements(shapes) for shapes in casts.shapes.cat.remove_unused_categories().cat.categories}
    return tuple(by_shapes.get(shapes, 0) for shapes in casts.shapes)


def _begins_with(column: pd.Series, begin: str) -> npt.NDArray[np.bool_]:
    codes = np.flatnonzero([text.startswith(begin) for text in column.cat.categories])
    return np.isin(column.cat.codes.to_numpy(), codes)


def _empty(calls: pd.DataFrame, host: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Select the calls during which no op and no call of the device's runtime begins."""
    begins = np.sort(host.start_ns[host.category.isin(["op", "runtime"])].to_numpy())
    start = calls.start_ns.to_numpy()
    return np.searchsorted(begins, start + calls.duration_ns.to_numpy()) <= np.searchsorted(begins, start, "right")


def _elements(shapes: str) -> int:
    dims = recorded_dims(shapes, 0)
    return math.prod(dims) if dims else 1
