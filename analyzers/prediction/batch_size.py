"""Derives the number of sequences, images or samples per step from the shapes of its ops."""

import json
from collections import Counter
from collections.abc import Iterator

import pandas as pd

_BATCH_FIRST = {
    "aten::scaled_dot_product_attention": 4,
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_efficient_attention": 4,
    "aten::_scaled_dot_product_cudnn_attention": 4,
    "aten::conv1d": 3,
    "aten::conv2d": 4,
    "aten::conv3d": 5,
    "aten::convolution": 4,
    "aten::cudnn_convolution": 4,
    "aten::miopen_convolution": 4,
    "aten::batch_norm": 4,
}
"""Ops whose first input has the batch as its first dimension -> rank of that input."""
_HANDLING = ("aten::copy_", "aten::clone")
_CHOOSING = ("aten::topk", "aten::argmax", "aten::multinomial", "aten::sort")
"""Ops that choose among logits [batch, vocabulary] of a floating-point type."""
_FLOATING = ("float", "c10::BFloat16", "c10::Half", "double")
_WHOLE = ("long int", "int")
_MATRIX = 2
_TOKENS = "aten::embedding"
"""Embedding lookup. Its second input is [batch, length]; position lookups have a batch of 1."""


def batch_by_shapes(host: pd.DataFrame) -> int:
    """Return the batch size of a step; 0 if the shapes do not determine it or disagree."""
    calls = host[host["name"].isin([*_BATCH_FIRST, _TOKENS]).to_numpy()]
    counted = Counter(zip(calls["name"].astype(str), calls["shapes"].astype(str), strict=True))
    votes: Counter[int] = Counter()
    tokens: list[int] = []
    for (name, shapes), count in counted.items():
        for size in _batches(name, shapes):
            if name == _TOKENS:
                tokens.append(size)
            else:
                votes[size] += count
    if not votes:
        return (
            max(tokens, default=0) or _of_matrices(host, _HANDLING, _WHOLE) or _of_matrices(host, _CHOOSING, _FLOATING)
        )
    size, most = votes.most_common(1)[0]
    return size if 2 * most > votes.total() else 0


def _of_matrices(host: pd.DataFrame, names: tuple[str, ...], dtypes: tuple[str, ...]) -> int:
    """Return the first dimension of the matrices of these types that ops with these names take first.

    Ops inside graphs are not recorded, but those around the launches of graphs are: copies of tokens [batch, length],
    and the choice of the next token. Return 0 if there are none or they disagree.
    """
    calls = host[host["name"].isin(names).to_numpy()][["shapes", "dtypes"]].astype(str).drop_duplicates()
    sizes = {_rows(shapes, types, dtypes) for shapes, types in zip(calls["shapes"], calls["dtypes"], strict=True)} - {0}
    return sizes.pop() if len(sizes) == 1 else 0


def _rows(shapes: str, types: str, dtypes: tuple[str, ...]) -> int:
    try:
        dims, dtype = json.loads(shapes)[0], json.loads(types)[0]
    except (ValueError, IndexError, TypeError, KeyError):
        return 0
    matrix = isinstance(dims, list) and len(dims) == _MATRIX and all(type(size) is int for size in dims)
    return max(dims[0], 0) if matrix and dtype in dtypes else 0


def _batches(name: str, shapes: str) -> Iterator[int]:
    try:
        inputs = json.loads(shapes)
        dims = inputs[1] if name == _TOKENS else inputs[0]
    except (ValueError, IndexError, TypeError, KeyError):
        return
    rank = 2 if name == _TOKENS else _BATCH_FIRST[name]
    if isinstance(dims, list) and len(dims) == rank and type(dims[0]) is int and dims[0] > 0:
        yield dims[0]
