"""The collectives in one rank's trace: on a device the kernels, on a CPU the ranges of gloo and other libraries."""

import json
import re
from math import prod

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute import Nest, is_communication, matching, take
from tracekit.analyzers.cost import kind_of, tensors
from tracekit.analyzers.trace import RECORDED_AS, recorded_dims

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_RANGE = re.compile(r"^(?:nccl|rccl|gloo|mpi|ucc|xccl):\w")
_KINDS = (
    ("all-reduce", re.compile(r"all_?reduce|cross_device_reduce|(?:one|two)_?shot|multimem", re.IGNORECASE)),
    ("reduce-scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all-gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all-to-all", re.compile(r"all_?to_?all|deep_?ep|dispatch|combine", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast|scatter", re.IGNORECASE)),
    ("reduce", re.compile(r"reduce|gather", re.IGNORECASE)),
    ("barrier", re.compile(r"barrier", re.IGNORECASE)),
    ("send", re.compile(r"(?<![a-z])i?send(?!_?recv)", re.IGNORECASE)),
    ("receive", re.compile(r"(?<![a-z])i?recv", re.IGNORECASE)),
)
"""Kinds by name; the first match decides. A kernel that both sends and receives has a name with neither."""


def kind_by_name(name: str) -> str:
    """Return the kind: all-reduce for ncclDevKernel_AllReduce_..., gloo:all_reduce and c10d::allreduce_; "" if
    unknown."""
    text = name.split("(")[0]
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "")


def calls_of_device(host: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of RANK_CALLS, without own times, of the rows of WORK that communicate."""
    calls = work[is_communication(work["name"])].sort_values("start_ns", kind="stable")
    start, launch = calls["start_ns"].to_numpy(np.int64), calls["launch"].to_numpy()
    asked = _asked(host, calls["op"].to_numpy(), launch)
    named = np.array([kind_by_name(str(name)) for name in calls["name"].cat.categories], dtype=object)
    by_name = named[calls["name"].cat.codes.to_numpy()] if len(named) else np.array([], dtype=object)
    return pd.DataFrame(
        {
            "step": calls["step"].to_numpy(),
            **asked,
            "kind": np.where(asked["kind"] == "", by_name, asked["kind"]),
            "name": calls["name"].to_numpy(),
            "phase": calls["phase"].to_numpy(),
            "stream": calls["stream"].to_numpy(),
            "start_ns": start,
            "end_ns": start + calls["duration_ns"].to_numpy(),
            "host_start_ns": take(host["start_ns"].to_numpy(), launch),
        }
    )


def _asked(host: pd.DataFrame, op: Ints, launch: Ints) -> dict[str, npt.NDArray]:
    """Return what the host records about each call: in its op or, without an op, in the range around its launch."""
    around = _range_around(host, launch)
    recorded = take((host["name"] == RECORDED_AS).to_numpy(), op, absent=False)
    source = np.where(recorded, op, around)
    return _columns(
        [_either(*pair) for pair in zip(_calls_of_rows(host, source), _calls_of_rows(host, around), strict=True)]
    )


_CELLS = ("name", "values", "shapes", "dtypes")


Said = tuple[str, int, str, int, str, int]
"""Group, sequence number, kind, bytes, dtype and peer."""


def _calls_of_rows(host: pd.DataFrame, rows: Ints) -> list[Said]:
    return [_said(*cells) for cells in zip(*(_cells(host, name, rows) for name in _CELLS), strict=True)]


def _either(first: Said, second: Said) -> Said:
    """Return the values of the op, or those of the range where the op has none."""
    size, element = first[3:5] if first[3] else second[3:5]
    return (*first[:2], first[2] or second[2], size, element, first[5])


def _columns(said: list[Said]) -> dict[str, npt.NDArray]:
    columns = list(zip(*said, strict=True)) or [()] * 6
    texts = {name: np.array(columns[at], dtype=object) for name, at in (("group", 0), ("kind", 2), ("dtype", 4))}
    numbers = {name: np.array(columns[at], dtype=np.int64) for name, at in (("sequence", 1), ("bytes", 3), ("peer", 5))}
    return {**texts, **numbers}


def _cells(host: pd.DataFrame, column: str, rows: Ints) -> list[str]:
    codes = take(host[column].cat.codes.to_numpy().astype(np.int64), rows)
    categories = host[column].cat.categories
    return [str(categories[code]) if code >= 0 else "" for code in codes.tolist()]


def _range_around(host: pd.DataFrame, launch: Ints) -> Ints:
    """Return the row of the communication library's range that is open on the thread at each launch."""
    ranges = (host["category"] == "range").to_numpy() & matching(host["name"], _RANGE)
    if not ranges.any():
        return np.full(len(launch), -1)
    thread, time = take(host["thread"].to_numpy(), launch), take(host["start_ns"].to_numpy().astype(np.int64), launch)
    return np.where(launch >= 0, Nest(host, ranges).around(thread, time), -1)


def _said(name: str, values: str, shapes: str, types: str) -> Said:
    try:
        called, sent, received, element, _, group, sequence, source, target = json.loads(values)
        dtype = tensors.find(element)
        size = max(int(sent), int(received)) * (dtype.bytes if dtype else 0)
        kind = kind_of(called) or kind_by_name(called)
        peer = int(target) if kind == "send" else int(source) if kind == "receive" else -1
        return group, int(sequence), kind, size, element, peer
    except (ValueError, TypeError, AttributeError):
        size, element = _first_tensor(shapes, types)
        return "", -1, "" if name == RECORDED_AS else kind_by_name(name), size, element, -1


def _first_tensor(shapes: str, types: str) -> tuple[int, str]:
    """Return the bytes and the dtype of the first tensor."""
    try:
        element = json.loads(types)[0]
        dtype = tensors.find(element)
    except (ValueError, TypeError, IndexError):
        return 0, ""
    shape = recorded_dims(shapes, 0)
    return (prod(shape) * dtype.bytes if shape else 0, element) if dtype else (0, "")


def calls_of_cpu(host: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of RANK_CALLS, without own times, for the ranges of a library that communicates
    between CPUs."""
    rows = np.flatnonzero((host["category"] == "range").to_numpy() & matching(host["name"], _RANGE))
    start = host["start_ns"].to_numpy(np.int64)[rows]
    order = np.argsort(start, kind="stable")
    rows, start = rows[order], start[order]
    said = _columns(_calls_of_rows(host, rows))
    begin = steps["start_ns"].to_numpy()
    at = np.searchsorted(begin, start, "right") - 1
    inside = (at >= 0) & (start < np.append(begin + steps["wall_ns"].to_numpy(), 0)[at])
    return pd.DataFrame(
        {
            "step": np.where(inside, np.append(steps["step"].to_numpy(), -1)[at], -1),
            **said,
            "name": host["name"].to_numpy()[rows],
            "phase": np.full(len(rows), "", dtype=object),
            "stream": host["thread"].to_numpy()[rows],
            "start_ns": start,
            "end_ns": start + host["duration_ns"].to_numpy()[rows],
            "host_start_ns": start,
        }
    )
