"""How people name what a host row does: by the function that ran and who called it, the op, the range or the call."""

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import matching
from tracekit.analyzers.attribution.nesting import Nest, Rows, nearest, take
from tracekit.analyzers.breakdown.covered import Covered
from tracekit.analyzers.breakdown.host_kinds import FRAMEWORK_RANGE, LOADING
from tracekit.analyzers.breakdown.python_names import Function, function_of

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Names = tuple[str, str, str]
"""name, location, caller"""

_CODE = ("data-loading", "preprocessing", "python")
"""Named by the function that ran; the others by their op, or by the call of the driver."""
_OPS = ("sync", "transfer", "allocation")
_CALLS = ("setup", "profiling", "communication", "compilation", "garbage-collection", "unexplained")
_LIBRARY_OP = re.compile(r"^(?!autograd|torch::autograd)\w+::\w+")
_NEAR = 8
"""A caller is looked for among so many functions,"""
_MOST_OPS = 64
"""and an outermost op among so many ops."""


def host_names(host: pd.DataFrame, rows: Ints, causes: npt.NDArray[np.object_]) -> pd.DataFrame:
    """Columns name, location and caller, one entry for each of `rows` (-1: none) of that cause."""
    wanted = np.flatnonzero((rows >= 0) & np.isin(causes, [*_CODE, *_OPS, *_CALLS]))
    said = np.full((len(rows), 3), "", dtype=object)
    if len(wanted):
        said[wanted] = _names(host, rows[wanted], causes[wanted])
    return pd.DataFrame(said, columns=["name", "location", "caller"])


def _names(host: pd.DataFrame, rows: Ints, causes: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    around = _Around(host, np.unique(rows))
    keys = pd.DataFrame(around.about(rows)).assign(cause=causes)
    codes, distinct = pd.factorize(pd.MultiIndex.from_frame(keys))
    texts = [_say(*key) for key in distinct]
    return np.array(texts, dtype=object).reshape(-1, 3)[codes]


class _Around:
    """The rows that stand around some rows of the host table, on their threads."""

    def __init__(self, host: pd.DataFrame, rows: Ints) -> None:
        start = host["start_ns"].to_numpy().astype(np.int64)
        stop = start + host["duration_ns"].to_numpy()
        spans = Covered(start[rows], stop[rows])
        threads = np.unique(host["thread"].to_numpy()[rows])
        encloses = (spans.within(start, stop) > 0) & np.isin(host["thread"].to_numpy(), threads)
        encloses[rows] = True
        self._rows = np.flatnonzero(encloses)
        self._part = host.iloc[self._rows].reset_index(drop=True)
        self._parent = Nest(self._part, np.ones(len(self._part), dtype=bool)).parents()
        self._name = self._part["name"].astype(object).to_numpy()

    def about(self, rows: Ints) -> dict[str, npt.NDArray[np.object_]]:
        """Names, "" for none, of each row and of what is around it."""
        at = np.searchsorted(self._rows, rows).astype(np.int32)
        category = self._part["category"].astype(object).to_numpy()
        frames = category == "python"
        foreign = self._told(lambda name: function_of(name).location != "" and not function_of(name).framework) & frames
        code = nearest(self._parent, foreign)[at]
        library = (category == "op") & matching(self._part["name"], _LIBRARY_OP)
        loader = ((category == "range") | frames) & matching(self._part["name"], LOADING)
        ranges = (category == "range") & ~matching(self._part["name"], FRAMEWORK_RANGE)
        return {
            "own": self._names(at),
            "code": self._names(code),
            "caller": self._names(self._caller(code, foreign)),
            "op": self._names(self._outermost(at, library)),
            "loader": self._names(nearest(self._parent, loader)[at]),
            "range": self._names(nearest(self._parent, ranges)[at]),
        }

    def _told(self, test: Callable[[str], bool]) -> Bools:
        names = self._part["name"].cat
        codes = names.codes.to_numpy()
        told = np.zeros(len(names.categories) + 1, dtype=bool)
        used = np.unique(codes[codes >= 0])
        told[used] = [test(str(names.categories[code])) for code in used]
        return told[codes]

    def _names(self, at: Rows) -> npt.NDArray[np.object_]:
        return np.where(at >= 0, np.append(self._name, "")[at], "").astype(object)

    def _outermost(self, at: Rows, mask: Bools) -> Rows:
        """The last of the unbroken line of such rows around each."""
        found = nearest(self._parent, mask)[at]
        for _ in range(_MOST_OPS):
            above = take(self._parent, found)
            further = (above >= 0) & take(mask, above, absent=False)
            if not further.any():
                break
            found = np.where(further, above, found)
        return found

    def _caller(self, code: Rows, foreign: Bools) -> Rows:
        """The nearest such row of another package around each; where none is near, of another file."""
        functions = [function_of(str(name)) for name in self._name]
        packages = np.array([*(function.package for function in functions), ""], dtype=object)
        files = np.array([*(function.location.rpartition(":")[0] for function in functions), ""], dtype=object)
        up = nearest(self._parent, foreign)
        package = self._climbed(code, up, packages)
        return np.where(package >= 0, package, self._climbed(code, up, files))

    def _climbed(self, code: Rows, up: Rows, labels: npt.NDArray[np.object_]) -> Rows:
        found = code
        for _ in range(_NEAR):
            same = (found >= 0) & (labels[found] == labels[code])
            found = np.where(same, take(up, take(self._parent, found)), found)
        return np.where(labels[found] == labels[code], -1, found)


def _say(own: str, code: str, caller: str, op: str, loader: str, around: str, cause: str) -> Names:
    function = function_of(code) if code else Function("", "", "", False)
    if cause in _CODE:
        called = caller or ("" if cause != "data-loading" else loader)
        name = function.name or function_of(op or loader or around or own).name
        return name, function.location, _called(called) if name != called else ""
    return (op or own) if cause in _OPS else function_of(own).name, function.location, function.name


def _called(frame: str) -> str:
    function = function_of(frame)
    return f"{function.name} ({function.location})" if function.location else function.name
