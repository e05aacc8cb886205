"""Copies between host and device that go with the code of the host which makes or reads what they move."""

import re

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import PAGEABLE, TO_DEVICE, TO_HOST
from tracekit.analyzers.predict import Baseline, Rows

CODE = ("preprocessing", "python")
"""Causes of host time that are code outside the model's ops."""
NOTABLE = 0.01
"""Host work below this fraction of a step is ignored."""
NOTABLE_PART = 0.2
"""Part of the host's work from which a function has code of its own."""
LONG_NS = 100_000
"""Time of a copy, in nanoseconds, from which it moves a tensor rather than a value."""
RANDOM = r"aten::(?:rand|normal_|uniform_|bernoulli|exponential_|multinomial|random_)"
MASKS = r"aten::(?:triu|tril|arange|ones|eye|linspace|masked_fill)"
_WRITES = r"save|write|dump|encode|serializ|pickle|send"


def of_causes(base: Baseline, causes: tuple[str, ...]) -> pd.DataFrame:
    """Return the rows of HOST_CAUSES of these causes."""
    return base.host_causes[base.host_causes["cause"].isin(causes)]


def made_on_host(base: Baseline) -> Rows:
    """Return the long copies of pageable memory to the device, if ops of PyTorch alone make them on the host, from
    constants or random numbers."""
    return long_to_device(base) & any(re.match(f"{RANDOM}|{MASKS}", name) for name in ops_on_host(base))


def long_to_device(base: Baseline) -> Rows:
    copies = base.recorded.copies_like(base.ops, TO_DEVICE, PAGEABLE)
    return np.asarray(copies & (base.ops.kernel_ns >= LONG_NS))


def leaving_before(base: Baseline, causes: tuple[str, ...]) -> Rows:
    """Return the long copies to the host after which it does work of these causes."""
    leaving = base.recorded.copies_like(base.ops, TO_HOST) & (base.ops.kernel_ns >= LONG_NS)
    return np.asarray(leaving & (base.outside.after_each(len(base.ops), causes) > 0))


def read_on_host(base: Baseline) -> Rows:
    """Return the long copies to the host that its work reads: this takes longer after them than they do, writes no
    files, and makes nothing large that is copied to the device, in this step or for the next one."""
    rows = leaving_before(base, CODE)
    most = base.outside.after_each(len(base.ops), CODE).max(where=rows, initial=0.0)
    coming = base.recorded.copies_like(base.ops, TO_DEVICE) & (base.ops.kernel_ns >= LONG_NS)
    makes = (coming & (np.cumsum(rows) > 0)).any() or (long_to_device(base).any() and not ops_on_host(base))
    reads = most > base.ops.kernel_ns[rows].sum() and not makes and not _writes(base)
    return rows & reads


def _writes(base: Baseline) -> bool:
    """Return whether a notable part of the host's work encodes or writes what leaves the device."""
    rows = of_causes(base, CODE)
    named = (rows["name"].astype(str) + " " + rows["caller"].astype(str)).str.contains(_WRITES)
    return bool(rows["idle_ns"][named].sum() > NOTABLE_PART * rows["idle_ns"].sum())


def ops_on_host(base: Baseline) -> list[str]:
    """Return the names of PyTorch's ops that take the host's time, if they take half of it or more, and no function
    with a name takes a notable part of it; else none."""
    rows = of_causes(base, CODE)
    times = rows.groupby(rows["name"].astype(str))["idle_ns"].sum()
    ops, named = times.index.str.startswith("aten::"), times.index != ""
    alone = times[named & ~ops].sum() <= NOTABLE * times.sum() and 2 * times[ops].sum() >= times.sum()
    return times.index[ops].tolist() if alone else []
