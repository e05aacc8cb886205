"""The op list: one step of a run as columns of its ops, which predictions transform and simulate again.

Columns are plain arrays: a search for a plan transforms some sixty lists of a few hundred ops, for which a DataFrame
takes longer than the arithmetic.
"""

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Bools, Floats, Ints, tables

Objects = npt.NDArray[np.object_]
Coded = tuple[npt.NDArray[np.intp], Objects]

_TABLES = tables(__file__)
OP_LIST = _TABLES["op_list"]
SWEEP = _TABLES["sweep"]


class OpList(msgspec.Struct, frozen=True, eq=False):
    """The columns of OP_LIST, of one length. `ops[rows]` selects rows by a mask, a slice, or their positions."""

    name: Objects
    call: Objects
    layer: Objects
    layer_type: Objects
    phase: Objects
    category: Objects
    host_ns: Floats
    kernel_ns: Floats
    launches: Ints
    sync: Bools
    cost: Objects
    message: Objects
    index: Ints
    """Number of each op, by which the list before a transformation is found again."""

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: "Bools | Ints | slice") -> "OpList":
        return OpList(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def assign(self, **columns: Any) -> "OpList":
        """Return a copy with these columns. A single value is that of every op."""
        return msgspec.structs.replace(self, **{name: self._column(name, columns[name]) for name in columns})

    @property
    def costed(self) -> Bools:
        """Whether the cost of each op is known."""
        return present(self.cost)

    def _column(self, name: str, values: Any) -> npt.NDArray[Any]:
        if isinstance(values, np.ndarray):
            return values
        column = np.empty(len(self), dtype=getattr(self, name).dtype)
        column[:] = values
        return column

    def renumbered(self) -> "OpList":
        """Return the same ops, numbered from 0."""
        return self.assign(index=np.arange(len(self)))

    def positions(self, index: "Ints | pd.Index[int]") -> npt.NDArray[np.intp]:
        """Return the positions of the ops with these numbers, which are at least 0; -1 for no op."""
        wanted = np.asarray(index)
        places = np.full(max(self.index.max(initial=-1), wanted.max(initial=-1)) + 1, -1, dtype=np.intp)
        places[self.index] = np.arange(len(self))
        return places[wanted]

    def frame(self) -> pd.DataFrame:
        """Return the columns as a DataFrame with the ops' numbers as index."""
        return OP_LIST.frame({each.name: getattr(self, each.name) for each in OP_LIST.columns}).set_index(self.index)


def op_list(**columns: Any) -> OpList:
    """Return the op list of these columns, numbered from 0. A column that is left out has the value for absent."""
    frame = OP_LIST.partial(columns)
    return OpList(**{each.name: _values(frame[each.name]) for each in OP_LIST.columns}, index=np.arange(len(frame)))


def _values(column: "pd.Series[Any]") -> npt.NDArray[Any]:
    """Return a column's values. Equal texts are one object; pandas would make one for each row."""
    if not isinstance(column.dtype, pd.StringDtype):
        return column.to_numpy()
    codes, texts = pd.factorize(column)
    return np.asarray(texts, dtype=object)[codes]


def joined(*lists: OpList) -> OpList:
    """Concatenate several op lists."""
    return OpList(*(np.concatenate([getattr(one, name) for one in lists]) for name in OpList.__struct_fields__))


def changed(column: npt.NDArray[Any], rows: Bools, values: Any) -> npt.NDArray[Any]:
    """Return a copy of a column with other values, or one other value, in these rows."""
    column = column.copy()
    column[rows] = values
    return column


_CODED: dict[int, tuple[Objects, Coded]] = {}
"""The latest columns by address: the lists of a search share most of them."""
_MOST_CODED = 64


def coded(column: Objects) -> Coded:
    """Return each row's index into the distinct objects of a column, and these objects in order of first appearance.

    The column can no longer be written to.
    """
    known = _CODED.get(id(column))
    if known is None:
        column.flags.writeable = False
        known = _CODED[id(column)] = column, _coded(column)
        if len(_CODED) > _MOST_CODED:
            del _CODED[next(iter(_CODED))]
    return known[1]


def _coded(column: Objects) -> Coded:
    """Compare objects by identity, not by equality, which needs no call into Python: an array of objects holds their
    addresses."""
    objects = np.ascontiguousarray(column, dtype=object)
    codes, addresses = pd.factorize(np.ndarray(len(objects), np.intp, objects))
    one = np.empty(len(addresses), dtype=object)
    one[codes] = objects
    return codes, one


def present(column: Objects) -> Bools:
    """Return which objects of a column are not None."""
    codes, objects = coded(column)
    return np.array([each is not None for each in objects], dtype=bool)[codes]
