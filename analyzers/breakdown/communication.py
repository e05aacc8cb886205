"""What the devices' time goes to, and how much communication hides behind computation.

Work is of three kinds: communication (collectives and transfers between devices, by the names of their kernels), copies
(and sets), and computation. Time in which work of several kinds runs counts in each of them, but once within a kind.
"""

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.attribution.intervals import union_ns
from tracekit.analyzers.attribution.items import Items
from tracekit.analyzers.attribution.kernel_names import is_communication
from tracekit.analyzers.results import DeviceTime

Bools = npt.NDArray[np.bool_]


def device_time(items: Items) -> DeviceTime | None:
    """Summed over devices; None in a trace of a CPU."""
    if not items.on_device:
        return None
    communication = is_communication(items.name)
    copies = ~communication & (items.category != "kernel").to_numpy()
    computation = ~communication & ~copies
    compute_ns = _union_ns(items, computation)
    return DeviceTime(
        span_ns=_span_ns(items),
        compute_ns=compute_ns,
        copy_ns=_union_ns(items, copies),
        communication_ns=_union_ns(items, communication),
        exposed_communication_ns=_union_ns(items, communication | computation) - compute_ns,
    )


def _union_ns(items: Items, mask: Bools) -> int:
    return union_ns(items.start[mask], items.end[mask], items.device[mask])


def _span_ns(items: Items) -> int:
    devices, number = np.unique(items.device, return_inverse=True)
    first = np.full(len(devices), np.iinfo(np.int64).max)
    last = np.full(len(devices), np.iinfo(np.int64).min)
    np.minimum.at(first, number, items.start)
    np.maximum.at(last, number, items.end)
    return int((last - first).sum())
