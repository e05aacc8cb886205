"""Splits the devices' time into computation, copies and communication, and finds the exposed communication.

Communication is collectives and transfers between devices, recognized by the names of their kernels. Copies include
sets. Time in which work of several kinds runs counts for each kind, but only once within a kind.
"""

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.attribution.covered_time import union_ns
from tracekit.analyzers.attribution.kernel_names import is_communication
from tracekit.analyzers.attribution.work_items import WorkItems
from tracekit.analyzers.results import DeviceTime

Bools = npt.NDArray[np.bool_]


def device_time(items: WorkItems) -> DeviceTime | None:
    """Return the times by kind of work in ns, summed over devices; None for a CPU-only trace."""
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


def _union_ns(items: WorkItems, mask: Bools) -> int:
    return union_ns(items.start[mask], items.end[mask], items.device[mask])


def _span_ns(items: WorkItems) -> int:
    devices, number = np.unique(items.device, return_inverse=True)
    first = np.full(len(devices), np.iinfo(np.int64).max)
    last = np.full(len(devices), np.iinfo(np.int64).min)
    np.minimum.at(first, number, items.start)
    np.maximum.at(last, number, items.end)
    return int((last - first).sum())
