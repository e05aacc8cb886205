"""Finds the messages of collectives: what they move between which ranks, if the trace records it."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.kernel_names import is_communication
from tracekit.analyzers.attribution.nesting import Rows, take
from tracekit.analyzers.costs.messages import Message, message, message_by_inputs
from tracekit.analyzers.readers.collective_args import RECORDED_AS

_CALLS = ("c10d::", "nccl:", "_c10d_functional::", "vllm::", "_C_custom_ar::", "sglang::", "sgl_kernel::")
"""Prefixes of ops of torch and of serving engines that call a collective, and of the ranges around its launch."""


def messages(host: pd.DataFrame, names: pd.Series, op: Rows) -> npt.NDArray[np.object_]:
    """Return a Message for each item, given its name and the host row of its op; None if it is not communication."""
    communicates = np.flatnonzero(is_communication(names))
    ops = op[communicates]
    recorded = take((host["name"] == RECORDED_AS).to_numpy(), ops, absent=False)
    codes, distinct = pd.factorize(np.where(recorded, take(host["values"].cat.codes.to_numpy(), ops), -1))
    parsed = np.array([message(host["values"].cat.categories[code]) if code >= 0 else Message() for code in distinct])
    result = np.full(len(names), None, dtype=object)
    result[communicates] = parsed[codes] if len(parsed) else None
    for item in communicates[ops >= 0]:
        if not result[item].sized:
            result[item] = _by_inputs(host, int(op[item]))
    return result


def _by_inputs(host: pd.DataFrame, op: int) -> Message:
    """Return the largest message among those of the op, of the op around it, and of the range inside it, by their
    inputs."""
    thread, names = host["thread"].to_numpy(), host["name"]
    rows = [row for row in range(max(op - 1, 0), min(op + 2, len(host))) if thread[row] == thread[op]]
    calls = [row for row in rows if str(names.iat[row]).startswith(_CALLS)]
    inputs = [[str(host[column].iat[row]) for column in ("name", "shapes", "dtypes")] for row in calls]
    return max((message_by_inputs(*each) for each in inputs), key=lambda each: each.bytes, default=Message())


def unknown_messages(host: pd.DataFrame, work: pd.DataFrame) -> int:
    """Return the number of collectives whose sizes or ranks are not recorded."""
    recorded = messages(host, work["name"], work["op"].to_numpy())
    return sum(each is not None and not each.known for each in recorded)
