"""Kernels that an optimization adds to the ops of a run: to quantize, unpack, mask or gather."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

import msgspec
import numpy as np
import numpy.typing as npt

from tracekit.analyzers.costs.call import Cost, Family
from tracekit.analyzers.costs.work import Precision
from tracekit.analyzers.interval import Interval
from tracekit.analyzers.kernel_time import estimate_ns
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList, joined
from tracekit.analyzers.transforms.by_cost import coded
from tracekit.analyzers.transforms.plain_launch import plain_launch_ns

PYTHON_OP = Interval(2.2, 1.5, 0.6)
"""Host time to enter an op that is written in Python (a custom op, an autograd function), in plain launches."""
SUBCLASS = Interval(6.0, 4.0, 1.0)
"""Host time that eager code adds to a layer whose weight is a tensor subclass (torchao) with dispatch in Python, in
plain launches: 18 to 26 µs on the host of an H200, on which a plain launch took 5 µs (int4, decode)."""
TORCHAO = "torchao::"
"""Prefix of the names of ops that torchao's Python code launches in eager mode."""
WIDENING = TORCHAO + "widen"
"""The kernel that widens int8 weights. If torch.compile generated it, it writes against their memory order (see
`compile`)."""


class Extra(msgspec.Struct, frozen=True):
    """An added kernel. `host` is its host time in plain launches; with `sync` the host then waits for it."""

    name: str
    cost: Cost
    host: float = 1.0
    sync: bool = False
    error: float = 1.0
    """Real kernel time relative to the modelled one."""


def moving(read_bytes: float, write_bytes: float, precision: Precision = "fp16", family: Family = "pointwise") -> Cost:
    """Return the cost of a kernel that reads and writes these bytes and computes almost nothing."""
    return Cost(0, round(read_bytes), round(write_bytes), family, precision)


def with_extras(
    base: Baseline,
    before: Mapping[int, Sequence[Extra]],
    after: Mapping[int, Sequence[Extra]],
    gone: Collection[int] = (),
) -> OpList:
    """Insert kernels before and after rows of the base's op list (by position), in the layers of these rows, and remove
    the rows in `gone`."""
    if not any((*before.values(), *after.values())):
        return base.ops
    rows = np.fromiter(chain(before, after), dtype=np.intp)
    places = rows + np.repeat((-0.5, 0.5), (len(before), len(after)))
    counts = [len(some) for some in chain(before.values(), after.values())]
    extras = list(chain.from_iterable(chain(before.values(), after.values())))
    new = _listed(base, np.repeat(rows, counts), extras)
    order = np.argsort(np.append(np.arange(len(base.ops)), np.repeat(places, counts)), kind="stable")
    order = order[~np.isin(order, list(gone))]
    return joined(base.ops, new)[order].renumbered()


def _listed(base: Baseline, rows: npt.NDArray[np.intp], extras: list[Extra]) -> OpList:
    """Return the op list of extra kernels in the layers of these rows."""
    unit = plain_launch_ns(base)
    codes, distinct = coded(np.array(extras, dtype=object))
    values = {
        "name": np.array([extra.name for extra in distinct], dtype=object),
        "call": np.array([extra.name for extra in distinct], dtype=object),
        "category": np.full(len(distinct), "kernel", dtype=object),
        "host_ns": np.array([extra.host * unit for extra in distinct]),
        "kernel_ns": np.array([extra.error * estimate_ns(extra.cost, base.gpu) for extra in distinct]),
        "launches": np.ones(len(distinct), dtype=np.int64),
        "sync": np.array([extra.sync for extra in distinct]),
        "cost": np.array([extra.cost for extra in distinct], dtype=object),
        "message": np.full(len(distinct), None, dtype=object),
    }
    return base.ops[rows].assign(**{name: column[codes] for name, column in values.items()})
