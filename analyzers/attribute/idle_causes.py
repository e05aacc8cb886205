"""Tables of the causes of idle time: by cause, and for each step by what the host did, with names for it."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.gaps import Idle
from tracekit.analyzers.attribute.host_kinds import (
    LOADING,
    UNKNOWN,
    WORDS,
    Codes,
    Function,
    codes_of,
    function_of,
    is_any,
    is_library_op,
    is_own_range,
    sums_by,
)
from tracekit.analyzers.attribute.kernel_names import matching
from tracekit.analyzers.attribute.nesting import Nest, Rows, nearest, take
from tracekit.analyzers.attribute.recorded_ranges import is_mark
from tracekit.analyzers.core import Bools
from tracekit.analyzers.results import CAUSE_MEANINGS, HOST_CAUSES, IDLE_CAUSES

UNKNOWN_CAUSE = "unknown"
"""The cause in sums of idle time if the launch of the work is not recorded."""


def idle_causes_table(idle: Idle) -> pd.DataFrame:
    """Return IDLE_CAUSES, longest first."""
    cause, gap, ns = (idle.parts[name] for name in ("cause", "gap", "duration_ns"))
    sums, (code, of), _ = sums_by(ns.to_numpy(), codes_of(cause), gap.to_numpy())
    by = pd.Series(sums).groupby(code).agg(["size", "sum", "mean", "max"])
    by = by.sort_values("sum", ascending=False, kind="stable")
    ops = idle.gaps["op"].cat
    waited, (caused, op), _ = sums_by(sums, code, ops.codes.to_numpy()[of])
    longest = pd.Series(op, caused).iloc[np.argsort(waited, kind="stable")].groupby(level=0).last()
    words = _words(cause.cat.categories)[by.index]
    return IDLE_CAUSES.frame(
        {
            "cause": words,
            "gaps": by["size"],
            "idle_ns": by["sum"].round().astype(np.int64),
            "share": by["sum"] / max(1, by["sum"].sum()),
            "mean_ns": by["mean"],
            "max_ns": by["max"].round().astype(np.int64),
            "op": ops.categories.to_numpy(dtype=object)[longest.reindex(by.index).to_numpy(dtype=np.int64)],
            "meaning": [CAUSE_MEANINGS.get(word, "the launch of the work is not recorded") for word in words],
        }
    )


def host_causes_table(host: pd.DataFrame, idle: Idle) -> pd.DataFrame:
    """Return HOST_CAUSES, by step and longest first."""
    parts = idle.parts
    if parts.empty:
        return HOST_CAUSES.empty()
    cause, gap = codes_of(parts["cause"]), parts["gap"].to_numpy()
    label, names = host_names(host, parts["row"].to_numpy(dtype=np.int64), cause)
    step = idle.gaps["step"].to_numpy()
    steps, of_step = np.unique(step, return_inverse=True)
    of_gap, (in_step, code, named, _), _ = sums_by(parts["duration_ns"].to_numpy(), of_step[gap], cause, label, gap)
    ns, (in_step, code, named), gaps = sums_by(of_gap, in_step, code, named)
    order = np.lexsort((-ns, in_step))
    texts = names[named[order]]
    return HOST_CAUSES.frame(
        {
            "step": steps[in_step[order]],
            "cause": _words(parts["cause"].cat.categories)[code[order]],
            **dict(zip(NAME_COLUMNS, texts.T, strict=True)),
            "gaps": gaps[order],
            "idle_ns": ns[order].round(),
        }
    )


def _words(causes: "pd.Index[str]") -> npt.NDArray[np.object_]:
    return np.array([cause if cause != UNKNOWN else UNKNOWN_CAUSE for cause in causes], dtype=object)


FULL = 1_000
"""Launches that are not done from which the queue is full: CUDA takes 1,022 of one stream."""
LONG_NS = 50_000
"""Time of a launch, in nanoseconds, from which it waited."""


def blocked_launches(host: pd.DataFrame, work: pd.DataFrame) -> Rows:
    """Return the host rows of the launches of `work` (rows of WORK of a device) that waited for a full queue."""
    calls = work[~work.duplicated("launch") | (work["launch"] < 0).to_numpy()]
    launch = calls["launch"].to_numpy()
    if len(calls) < FULL:
        return np.zeros(0, dtype=np.int32)
    began = take(host["start_ns"].to_numpy(), launch, np.iinfo(np.int64).min)
    ended = np.sort((calls["start_ns"] + calls["duration_ns"]).to_numpy())
    pending = np.searchsorted(np.sort(began), began) - np.searchsorted(ended, began, "right")
    long = take(host["duration_ns"].to_numpy(), launch, 0) >= LONG_NS
    return np.sort(launch[(launch >= 0) & (pending >= FULL) & long])


Integers = npt.NDArray[np.int64]
Names = tuple[str, str, str]
NAME_COLUMNS = ("name", "location", "caller")

_CODE = ("data-loading", "preprocessing", "python")
"""Causes named by the function that ran; other causes are named by their op, or by the driver call."""
_OPS = ("sync", "transfer", "allocation")
_CALLS = (
    "recording",
    "setup",
    "planning",
    "profiling",
    "communication",
    "compilation",
    "garbage-collection",
    "unexplained",
)
_BLOCK_ROWS = 1 << 18
_NEAR = 8
"""Maximum number of functions among which a caller is searched."""
_MOST_OPS = 64
"""Maximum number of ops among which an outermost op is searched."""


def host_names(host: pd.DataFrame, rows: Integers, causes: Codes) -> tuple[Integers, npt.NDArray[np.object_]]:
    """Return a number for each of `rows` (-1 for none) with its cause, and the names (NAME_COLUMNS) that each number
    stands for."""
    wanted = np.flatnonzero((rows >= 0) & is_any(causes, [*_CODE, *_OPS, *_CALLS]))
    number, texts = np.zeros(len(rows), dtype=np.int64), [("", "", "")]
    if len(wanted):
        distinct, which = np.unique(rows[wanted] * len(WORDS) + causes[wanted], return_inverse=True)
        of_distinct, texts = _names(host, *np.divmod(distinct, len(WORDS)))
        number[wanted] = of_distinct[which]
    return number, np.array(texts, dtype=object)


def _names(host: pd.DataFrame, rows: Integers, causes: Integers) -> tuple[Integers, list[Names]]:
    """Return the number of each row's names, and the names by number. Number 0 is for rows without a name."""
    around = _Around(host, np.unique(rows))
    distinct, which = np.unique(np.column_stack([*around.about(rows), causes]), axis=0, return_inverse=True)
    numbers: dict[Names, int] = {("", "", ""): 0}
    every = (_name_of(WORDS[key[-1]], *around.distinct[key[:-1]]) for key in distinct)
    return np.array([numbers.setdefault(names, len(numbers)) for names in every])[which.ravel()], list(numbers)


class _Around:
    """Some rows of the host table, and the rows around them on their threads."""

    def __init__(self, host: pd.DataFrame, rows: Integers) -> None:
        self._rows = _enclosing(host, rows)
        part = host[["start_ns", "duration_ns", "thread", "category", "name"]].iloc[self._rows].reset_index(drop=True)
        part["name"] = part["name"].cat.remove_unused_categories()
        self._part, self._parent = part, Nest(part, np.ones(len(part), dtype=bool)).parents
        self._code = part["name"].cat.codes.to_numpy()
        self.distinct = np.array([*map(str, part["name"].cat.categories), ""], dtype=object)
        """Distinct names; the last one, "", is for no row."""

    def about(self, rows: Integers) -> list[Integers]:
        """Return the numbers of the names of each row and of the rows around it; -1 for none.

        The rows around it are the running code, its caller, the outermost op, the data loader and the range.
        """
        at = np.searchsorted(self._rows, rows).astype(np.int32)
        names, category = self._part["name"], self._part["category"]
        frames, ranges = ((category == each).to_numpy() for each in ("python", "range"))
        written = self._numbered(lambda function: bool(function.location) and not function.framework)
        foreign = frames & (written[:-1] != written[-1])
        code = nearest(self._parent, foreign)[at]
        around = [
            at,
            code,
            self._caller(code, foreign),
            self._outermost(at, is_library_op(self._part)),
            nearest(self._parent, (ranges | frames) & matching(names, LOADING))[at],
            nearest(self._parent, is_own_range(self._part))[at],
        ]
        return [take(self._code, row) for row in around]

    def _numbered(self, label: Callable[[Function], object]) -> Integers:
        """Return a number for the label of each row's function, and last the number for no row."""
        numbers, _ = pd.factorize(np.array([label(function_of(name)) for name in self.distinct], dtype=object))
        return numbers[np.append(self._code, -1)]

    def _outermost(self, at: Rows, mask: Bools) -> Rows:
        """Return the outermost row of the unbroken chain of rows in the mask around each row."""
        outermost = nearest(self._parent, mask)[at]
        for _ in range(_MOST_OPS):
            above = take(self._parent, outermost)
            further = (above >= 0) & take(mask, above, absent=False)
            if not further.any():
                break
            outermost = np.where(further, above, outermost)
        return outermost

    def _caller(self, code: Rows, foreign: Bools) -> Rows:
        """Return the nearest enclosing foreign row of another package, or if none is near, of another file."""
        packages = self._numbered(lambda function: function.package)
        files = self._numbered(lambda function: function.location.rpartition(":")[0])
        up = nearest(self._parent, foreign)
        package = self._climbed(code, up, packages)
        return np.where(package >= 0, package, self._climbed(code, up, files))

    def _climbed(self, code: Rows, up: Rows, labels: Integers) -> Rows:
        caller = code
        for _ in range(_NEAR):
            same = (caller >= 0) & (labels[caller] == labels[code])
            caller = np.where(same, take(up, take(self._parent, caller)), caller)
        return np.where(labels[caller] == labels[code], -1, caller)


def _enclosing(host: pd.DataFrame, rows: Integers) -> Integers:
    """Return these rows, and the rows of their threads that are open when one of them begins."""
    start, duration, thread = (host[name].to_numpy() for name in ("start_ns", "duration_ns", "thread"))
    starts, mine = np.sort(start[rows]), np.zeros(int(thread.max(initial=0)) + 1, dtype=bool)
    mine[thread[rows]] = True
    met = [rows]
    for low in range(0, len(host), _BLOCK_ROWS):
        block = slice(low, low + _BLOCK_ROWS)
        begun = np.searchsorted(starts, start[block], "left")
        open_then = np.searchsorted(starts, start[block] + duration[block], "right") > begun
        met.append(np.flatnonzero(open_then & mine[thread[block]]) + low)
    return np.unique(np.concatenate(met))


def _name_of(cause: str, own: str, code: str, caller: str, op: str, loader: str, around: str) -> Names:
    """Return what took the time: the op of PyTorch that ran on the host, else the function. It is no mark of a step."""
    function = function_of(code) if code else Function("", "", "", False)
    own = "" if is_mark(own) else own
    if cause not in _CODE:
        return (op or own) if cause in _OPS else function_of(own).name, function.location, function.name
    if op and cause != "data-loading":
        return op, function.location, _with_location(caller) or function.name
    called = caller or ("" if cause != "data-loading" else loader)
    name = function.name or function_of(op or loader or around or own).name
    return name, function.location, _with_location(called) if name != called else ""


def _with_location(frame: str) -> str:
    function = function_of(frame)
    return f"{function.name} ({function.location})" if function.location else function.name
