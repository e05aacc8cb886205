"""Finds forward passes by the ops that read a model's inputs: the lookup of tokens, or the convolution of an image."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.recorded_dims import recorded_dims

Ints = npt.NDArray[np.int64]

_TOKENS = "aten::embedding"
_IMAGES = ("aten::conv2d", "aten::conv3d", "aten::convolution")
"""The last one is nested in the others."""
_COLOURS = 4
"""Maximum number of channels of an image; inner layers have more."""
_IMAGE_RANK = 4
"""Smallest rank of a convolution's weights."""


def input_ops(host: pd.DataFrame) -> Ints:
    """Return the host rows of the op that reads the inputs, one for each forward pass; empty without such an op.

    It is the lookup in the largest table, or else the convolution of an image with the most weights. The largest table
    is that of tokens; smaller ones hold positions and types. A pass that reads an image and then tokens, as CLIP's
    does, begins with the image.
    """
    names, shapes = host["name"].astype(str), host["shapes"].astype(str)
    lookups = np.flatnonzero((names == _TOKENS).to_numpy())
    tokens = _of_largest(lookups, shapes, _table_size)
    images = next(filter(len, (_images(names == name, shapes) for name in _IMAGES)), tokens[:0])
    return images if not len(tokens) or _each_before(host, images, tokens) else tokens


def _images(called: "pd.Series[bool]", shapes: "pd.Series[str]") -> Ints:
    return _of_largest(np.flatnonzero(called.to_numpy()), shapes, _filters_size)


def _each_before(host: pd.DataFrame, images: Ints, tokens: Ints) -> bool:
    """Return whether there are as many images as lookups of tokens, and each lookup follows its image."""
    if len(images) != len(tokens):
        return False
    first, then = (np.sort(host["start_ns"].to_numpy()[rows]) for rows in (images, tokens))
    return bool((first < then).all() and (then[:-1] < first[1:]).all())


def _of_largest(rows: Ints, shapes: "pd.Series[str]", size: Callable[[str], int]) -> Ints:
    """Return the rows whose weights are the largest, if their size is known."""
    texts = shapes.iloc[rows]
    sizes = texts.map({text: size(text) for text in texts.unique()}).to_numpy(dtype=np.int64)
    return rows[(sizes == sizes.max()) & (sizes > 0)] if len(rows) else rows


def _table_size(shapes: str) -> int:
    return _product(recorded_dims(shapes, 0))


def _filters_size(shapes: str) -> int:
    weights = recorded_dims(shapes, 1)
    return _product(weights) if len(weights) >= _IMAGE_RANK and weights[1] <= _COLOURS else 0


def _product(dims: list[int]) -> int:
    return int(np.prod(dims, dtype=np.float64)) if dims else 0
