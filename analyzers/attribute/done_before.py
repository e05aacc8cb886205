"""Finds work that a run has done before: forward ops inside the backward pass, and passes over a growing prefix."""

import re

import msgspec
import numpy as np
import pandas as pd

from tracekit.analyzers.attribute.host import ENGINE
from tracekit.analyzers.attribute.intervals import Covered
from tracekit.analyzers.attribute.kernel_names import is_helper, matching, may_multiply
from tracekit.analyzers.attribute.nesting import Nest, nearest
from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.trace import recorded_dims

_FORWARD = {
    "product": re.compile(r"^aten::(?:linear|addmm|conv[123]d|convolution)$"),
    "norm": re.compile(r"^aten::(?:layer_norm|rms_norm|group_norm|batch_norm|instance_norm|native_\w+_norm)$"),
    "attention": re.compile(r"^aten::(?:_?scaled_dot_product_(?:\w+_)?attention|_?softmax)$"),
    "activation": re.compile(r"^aten::(?:gelu|silu|relu_?|leaky_relu|dropout|native_dropout)$"),
}
"""Kinds of ops that models call, and formulas of gradients do not: these call their backward ops, or `aten::mm`."""
_LEAST_KINDS = 2
"""Number of kinds inside one node of the backward pass from which it runs a part of the model again. The backward of a
custom function may call ops of one kind."""


_HOOKS = re.compile(r"torch/utils/checkpoint\.py\(\d+\): (?:(?:un)?pack_hook|_checkpoint_without_reentrant_generator)$")
"""Functions of checkpointing, by the stacks of Python, that do not contain the forward pass itself."""


def checkpointing(host: pd.DataFrame, again: Covered) -> Covered:
    """Return the time that checkpointing takes on the host: the forward pass `again`, until the next op begins, and
    where stacks are recorded, the functions that run and prepare it, as far as they are long enough to be kept."""
    begins, ends = again.spans()
    if not len(ends):
        return again
    starts = np.append(np.sort(_start(host, np.flatnonzero(host["category"] == "op"))), ends[-1])
    following = np.maximum(starts[np.searchsorted(starts[:-1], ends)], ends)
    hooks = time_in(host, (host["category"] == "python").to_numpy() & matching(host["name"], _HOOKS))
    return Covered(*(np.append(*both) for both in zip((begins, following), hooks.spans(), strict=True)))


def time_in(host: pd.DataFrame, chosen: Bools) -> Covered:
    """Return the time that any of the chosen rows of the host covers."""
    rows = np.flatnonzero(chosen)
    return Covered(_start(host, rows), _end(host, rows))


def forward_again(host: pd.DataFrame) -> Covered:
    """Return the time in which the backward pass runs parts of the forward pass again, as checkpointing does.

    Each part lasts from the start of a node of autograd, which first computes what it reads, to the last forward op
    inside.
    """
    op = (host["category"] == "op").to_numpy()
    kind = np.select([matching(host["name"], each) for each in _FORWARD.values()], range(1, len(_FORWARD) + 1))
    forward, engine = op & (kind > 0), op & matching(host["name"], ENGINE)
    nothing = np.zeros(0, dtype=np.int64)
    if not engine.any() or not forward.any():
        return Covered(nothing, nothing)
    rows = np.flatnonzero(forward)
    node = nearest(Nest(host, forward | engine).parents, engine)[rows]
    ops = pd.DataFrame({"node": node, "kind": kind[rows], "end": _end(host, rows)})
    ops = ops[(ops["node"] >= 0) & ops["kind"].isin(ops["kind"][ops["node"] < 0])]
    if ops.empty:
        return Covered(nothing, nothing)
    nodes = ops.groupby("node")
    some = (nodes["kind"].nunique() >= _LEAST_KINDS).to_numpy()
    last = nodes["end"].max()[some]
    return Covered(_start(host, last.index.to_numpy()), last.to_numpy(np.int64))


def _start(host: pd.DataFrame, rows: Ints) -> Ints:
    return host["start_ns"].to_numpy()[rows].astype(np.int64)


def _end(host: pd.DataFrame, rows: Ints) -> Ints:
    return _start(host, rows) + host["duration_ns"].to_numpy()[rows]


class Growth(msgspec.Struct, frozen=True):
    """Passes of a model, each over one more token than the pass before it."""

    passes: int
    tokens: float
    """Tokens of a pass, mean of the first and the last pass."""


_PRODUCT = re.compile(r"^aten::(?:mm|addmm)$")
_PASSES = 4
"""Fewest passes that can grow."""
_TOKENS = 4
"""Fewest tokens of a pass that are worth a cache."""
_REGULAR = 0.8
"""Fraction of passes that are longer than the pass before by the same number of tokens. The others begin a new text."""
_MOST = 0.5
"""Fraction of the kernels that must grow, without shapes. With a cache, only those that read or write it do."""
_SOME = 0.1
"""Fraction of the products with weights that must grow, by shapes. With a cache none of them does; those that do not
grow without one are computed again for each token, such as an encoder's."""


def growing_prefix(host: pd.DataFrame, device: pd.DataFrame) -> Growth | None:
    """Return how the passes grow that compute all earlier tokens again, as in generation without a KV cache.

    By the rows of products; without shapes, by the grids of kernels that multiply nothing. None if they do not grow.
    """
    products = np.flatnonzero((host["category"] == "op").to_numpy() & matching(host["name"], _PRODUCT))
    shapes = host["shapes"].iloc[products]
    if len(shapes) and any(shapes.cat.remove_unused_categories().cat.categories):
        return _by_rows(host, products)
    return _by_grids(device)


def _by_rows(host: pd.DataFrame, products: Ints) -> Growth | None:
    """Return the growth of products with the same weights, in the order in which the host issued them."""
    products = products[np.argsort(host["start_ns"].to_numpy()[products], kind="stable")]
    codes = host["shapes"].cat.codes.to_numpy()[products]
    sizes = {code: _sizes(str(host["shapes"].cat.categories[code])) for code in np.unique(codes[codes >= 0])}
    known = [(size[1:], size[0]) for code in codes.tolist() if (size := sizes.get(code))]
    calls = pd.DataFrame(known, columns=["weights", "rows"])
    rows = [of["rows"].to_numpy() for _, of in calls.groupby("weights", sort=False)]
    found = [(_growth(each), each) for of in rows for each in (of, _without_usual(of))]
    growing = [(growth, len(each)) for growth, each in found if growth]
    if not growing or sum(count for _, count in growing) < _SOME * len(calls):
        return None
    return max(growing, key=lambda pair: pair[1])[0]


def _without_usual(rows: Ints) -> Ints:
    """Return the rows of products without the most frequent number of them: that of an encoder with the same sizes."""
    values, counts = np.unique(rows, return_counts=True)
    return rows[rows != values[counts.argmax()]]


def _sizes(shapes: str) -> tuple[int, int, int] | None:
    """Return rows, columns and inner size of a product with recorded shapes; None if they are not those of one."""
    dims = [each for each in (recorded_dims(shapes, place) for place in range(3)) if each and len(each) == 2]
    return (dims[-2][0], dims[-1][1], dims[-1][0]) if len(dims) >= 2 and dims[-2][1] == dims[-1][0] else None


def _growth(values: Ints, tolerance: int = 0) -> Growth | None:
    """Return the growth of sizes in order, of which equal ones in a row belong to one pass; None if they do not grow
    by the same amount. A grid is rounded up, by at most the tolerance."""
    values = values[np.flatnonzero(np.diff(values, prepend=-1))]
    if len(values) < _PASSES:
        return None
    more = np.diff(values)
    usual = int(np.median(more))
    regular = (more >= max(usual - tolerance, 1)) & (more <= usual + tolerance)
    if usual < 1 or regular.mean() < _REGULAR:
        return None
    each = float(more[regular].mean())
    tokens = float(values.min() + values.max()) / 2 / each
    return Growth(len(values), tokens) if tokens >= _TOKENS else None


def _by_grids(device: pd.DataFrame) -> Growth | None:
    """Return the growth of kernels by their grids; those of one name have one place in each pass."""
    gridded = (device["category"] == "kernel").to_numpy() & (device["blocks"] > 0).to_numpy()
    kernels = device[["name", "blocks"]][gridded]
    names = kernels["name"]
    kernels = kernels[is_helper(names) | ~may_multiply(names)]
    if len(kernels) < _PASSES:
        return None
    grids = [_growing(of) for of in _by_name(kernels)]
    found = [growth for values in grids if (growth := _growth(values, tolerance=1))]
    if not found:
        return None
    best = max(found, key=lambda growth: growth.passes)
    growing = sum(len(values) for values in grids if _grow_in_place(values, best.passes))
    return best if growing >= _MOST * len(kernels) else None


def _by_name(kernels: pd.DataFrame) -> list[Ints]:
    """Return the grids of the kernels of each name, in the order in which the names come first."""
    codes, names = pd.factorize(kernels["name"].cat.codes.to_numpy())
    blocks = kernels["blocks"].to_numpy()[np.argsort(codes, kind="stable")]
    return np.split(blocks, np.cumsum(np.bincount(codes, minlength=len(names)))[:-1])


def _growing(grids: Ints) -> Ints:
    """Return these grids, or those without the most frequent one, as of the last token alone, if only they grow."""
    rest = _without_usual(grids)
    return grids if _growth(grids, tolerance=1) or not _growth(rest, tolerance=1) else rest


def _grow_in_place(grids: Ints, passes: int) -> bool:
    """Return whether most kernels with one place in each of these passes have larger grids in later ones."""
    if len(grids) % passes:
        return _growth(grids, tolerance=1) is not None
    by_pass = grids.reshape(passes, -1)
    return bool((by_pass[-1] > by_pass[0]).mean() > _MOST)
