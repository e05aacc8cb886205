"""Which work is communication, and what it moves where the trace says so."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_communication
from tracekit.analyzers.attribution.nesting import Rows, take
from tracekit.analyzers.costs.messages import Message, message
from tracekit.analyzers.readers.collectives import RECORDED_AS


def messages(host: pd.DataFrame, names: pd.Series, op: Rows) -> npt.NDArray[np.object_]:
    """Per item, by its name and the host row of its op, a Message; None for what is no communication."""
    communicates = np.flatnonzero(is_communication(names))
    of = op[communicates]
    recorded = take((host["name"] == RECORDED_AS).to_numpy(), of, absent=False)
    codes, distinct = pd.factorize(np.where(recorded, take(host["values"].cat.codes.to_numpy(), of), -1))
    said = np.array([message(host["values"].cat.categories[code]) if code >= 0 else Message() for code in distinct])
    found = np.full(len(names), None, dtype=object)
    found[communicates] = said[codes] if len(said) else None
    return found


def unknown_messages(host: pd.DataFrame, work: pd.DataFrame) -> int:
    """How many collectives do not say what they move between which ranks."""
    found = messages(host, work["name"], work["op"].to_numpy())
    return sum(each is not None and not each.known for each in found)
