"""How people name what a host row does: by the function that ran and who called it, the op, the range or the call."""

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import matching
from tracekit.analyzers.attribution.nesting import Nest, Rows, nearest, take
from tracekit.analyzers.breakdown.cause_codes import WORDS, Codes, is_any
from tracekit.analyzers.breakdown.host_kinds import FRAMEWORK_RANGE, LOADING
from tracekit.analyzers.breakdown.python_names import Function, function_of

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Names = tuple[str, str, str]
NAME_COLUMNS = ("name", "location", "caller")

_CODE = ("data-loading", "preprocessing", "python")
"""Named by the function that ran; the others by their op, or by the call of the driver."""
_OPS = ("sync", "transfer", "allocation")
_CALLS = ("setup", "profiling", "communication", "compilation", "garbage-collection", "unexplained")
_LIBRARY_OP = re.compile(r"^(?!autograd|torch::autograd)\w+::\w+")
_BLOCK_ROWS = 1 << 18
_NEAR = 8
"""A caller is looked for among so many functions,"""
_MOST_OPS = 64
"""and an outermost op among so many ops."""


def host_names(host: pd.DataFrame, rows: Ints, causes: Codes) -> tuple[Ints, npt.NDArray[np.object_]]:
    """Which names each of `rows` (-1: none) of that cause has: a number of theirs, and per number NAME_COLUMNS."""
    wanted = np.flatnonzero((rows >= 0) & is_any(causes, [*_CODE, *_OPS, *_CALLS]))
    number, texts = np.zeros(len(rows), dtype=np.int64), [("", "", "")]
    if len(wanted):
        distinct, which = np.unique(rows[wanted] * len(WORDS) + causes[wanted], return_inverse=True)
        of_distinct, texts = _names(host, *np.divmod(distinct, len(WORDS)))
        number[wanted] = of_distinct[which]
    return number, np.array(texts, dtype=object)


def _names(host: pd.DataFrame, rows: Ints, causes: Ints) -> tuple[Ints, list[Names]]:
    """The number of each row's names, and the names; number 0 is of what nothing names."""
    around = _Around(host, np.unique(rows))
    distinct, which = np.unique(np.column_stack([*around.about(rows), causes]), axis=0, return_inverse=True)
    numbers: dict[Names, int] = {("", "", ""): 0}
    said = (_say(WORDS[key[-1]], *around.distinct[key[:-1]]) for key in distinct)
    return np.array([numbers.setdefault(names, len(numbers)) for names in said])[which.ravel()], list(numbers)


class _Around:
    """Some rows of the host table, and the rows that stand around them on their threads."""

    def __init__(self, host: pd.DataFrame, rows: Ints) -> None:
        self._rows = _enclosing(host, rows)
        part = host[["start_ns", "duration_ns", "thread", "category", "name"]].iloc[self._rows].reset_index(drop=True)
        part["name"] = part["name"].cat.remove_unused_categories()
        self._part, self._parent = part, Nest(part, np.ones(len(part), dtype=bool)).parents()
        self._code = part["name"].cat.codes.to_numpy()
        self.distinct = np.array([*map(str, part["name"].cat.categories), ""], dtype=object)
        """Distinct names; the last one is that of no row."""

    def about(self, rows: Ints) -> list[Ints]:
        """Numbers of the names of each row and of what is around it: of the code that runs, its caller, the outermost
        op, the data loader and the range; -1: none."""
        at = np.searchsorted(self._rows, rows).astype(np.int32)
        names, category = self._part["name"], self._part["category"]
        frames, ranges, ops = ((category == each).to_numpy() for each in ("python", "range", "op"))
        written = self._told(lambda function: bool(function.location) and not function.framework)
        foreign = frames & (written[:-1] != written[-1])
        code = nearest(self._parent, foreign)[at]
        stand = [
            at,
            code,
            self._caller(code, foreign),
            self._outermost(at, ops & matching(names, _LIBRARY_OP)),
            nearest(self._parent, (ranges | frames) & matching(names, LOADING))[at],
            nearest(self._parent, ranges & ~matching(names, FRAMEWORK_RANGE))[at],
        ]
        return [take(self._code, row) for row in stand]

    def _told(self, tell: Callable[[Function], object]) -> Ints:
        """A number for what is told of the function that each row is; last, that of no row."""
        numbers, _ = pd.factorize(np.array([tell(function_of(name)) for name in self.distinct], dtype=object))
        return numbers[np.append(self._code, -1)]

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
        packages = self._told(lambda function: function.package)
        files = self._told(lambda function: function.location.rpartition(":")[0])
        up = nearest(self._parent, foreign)
        package = self._climbed(code, up, packages)
        return np.where(package >= 0, package, self._climbed(code, up, files))

    def _climbed(self, code: Rows, up: Rows, labels: Ints) -> Rows:
        found = code
        for _ in range(_NEAR):
            same = (found >= 0) & (labels[found] == labels[code])
            found = np.where(same, take(up, take(self._parent, found)), found)
        return np.where(labels[found] == labels[code], -1, found)


def _enclosing(host: pd.DataFrame, rows: Ints) -> Ints:
    """These rows and the rows of their threads that are open when one of them begins."""
    start, duration, thread = (host[name].to_numpy() for name in ("start_ns", "duration_ns", "thread"))
    moments, mine = np.sort(start[rows]), np.zeros(int(thread.max(initial=0)) + 1, dtype=bool)
    mine[thread[rows]] = True
    met = [rows]
    for low in range(0, len(host), _BLOCK_ROWS):
        block = slice(low, low + _BLOCK_ROWS)
        begun = np.searchsorted(moments, start[block], "left")
        open_then = np.searchsorted(moments, start[block] + duration[block], "right") > begun
        met.append(np.flatnonzero(open_then & mine[thread[block]]) + low)
    return np.unique(np.concatenate(met))


def _say(cause: str, own: str, code: str, caller: str, op: str, loader: str, around: str) -> Names:
    function = function_of(code) if code else Function("", "", "", False)
    if cause in _CODE:
        called = caller or ("" if cause != "data-loading" else loader)
        name = function.name or function_of(op or loader or around or own).name
        return name, function.location, _called(called) if name != called else ""
    return (op or own) if cause in _OPS else function_of(own).name, function.location, function.name


def _called(frame: str) -> str:
    function = function_of(frame)
    return f"{function.name} ({function.location})" if function.location else function.name
