"""Counts FLOPs and bytes of each work item.

The cost of an op is split over its kernels by duration. FLOPs of GEMMs, convolutions and attention go to the kernels
that compute them, not to helper kernels that transpose or copy. A copy has its own bytes, and a collective the bytes
that it moves over a link.
"""

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.host import Host
from tracekit.analyzers.attribute.items import WorkItems
from tracekit.analyzers.attribute.kernel_names import is_communication
from tracekit.analyzers.attribute.nesting import Rows, take
from tracekit.analyzers.attribute.op_costs import charged_to, price, with_ancestors
from tracekit.analyzers.core import Bools, Floats, Ints
from tracekit.analyzers.cost import Message, generated, message, message_by_inputs
from tracekit.analyzers.trace import RECORDED_AS

_TF32_FAMILIES = ("gemm", "convolution")
_WITH_HELPERS = ("gemm", "convolution", "attention")


class Costed(msgspec.Struct, frozen=True):
    """Costs of work items, with one entry per item; NaN, or "", if unknown."""

    cost_op: Rows
    """Host row of the op whose cost it is a part of; -1: none."""
    family: npt.NDArray[np.object_]
    precision: npt.NDArray[np.object_]
    flops: Floats
    bytes: Floats
    working_set: Floats
    """Bytes of the whole op that the item belongs to."""
    host_link: Bools
    """Whether it is a copy between host and device."""
    peer_link: Bools
    """Whether it is a copy or collective between devices."""
    unknown_link: Bools
    """Whether it is a collective of an unknown group, or between hosts: the roof of its link is unknown."""
    estimated: Bools
    """Whether the bytes are only those of the op's inputs; FLOPs are then unknown."""


def cost_items(host: Host, items: WorkItems, op: Rows, replay: Rows, tf32: bool, parameters: int | None) -> Costed:
    """Return the costs of items, given the host rows of their ops.

    An op that was captured in a CUDA graph has its cost in each `replay` (-1 for none). `tf32` states that a setting
    made fp32 GEMMs use TF32. `parameters` is the number of the model's weights, None if unknown.
    """
    parent = np.append(host.ops.parents, np.int32(-1))
    known = price(host.table, with_ancestors(parent, op), parameters)
    communication = items.said.communicates
    copies = (items.category != "kernel").to_numpy() & (items.bytes >= 0)
    sparse = np.isin(op, op[items.said.is_sparse & (op >= 0)])  # their cost depends on how full a matrix is
    cost_op = np.where(communication | sparse, -1, charged_to(known, parent, op))
    number = known.of_row[cost_op]
    share = _share(np.where(copies, -1, cost_op), replay, items.duration)
    estimated = np.append(known.estimated, False)[number]
    working_set = _numbers(number, [cost.bytes for cost in known.costs])
    family = _names(number, [cost.family for cost in known.costs])
    able = ~(items.said.helps & np.isin(family, _WITH_HELPERS))
    done = _share(np.where(copies, -1, cost_op), replay, items.duration, able)
    flops = np.where(estimated, np.nan, _numbers(number, [cost.flops for cost in known.costs]) * done)
    family = np.where(family == "", _generated_families(items.name), family)
    precision = _precision(items, family, _names(number, [cost.precision for cost in known.costs]), tf32)
    sent = messages(host.table, items.name, op)[communication]
    moves, moved = copies | communication, _moved(items, communication, sent)
    family[copies] = "copy"
    return Costed(
        cost_op=cost_op,
        family=family,
        precision=precision,
        flops=np.where(copies, 0.0, flops),
        bytes=np.where(moves, moved, working_set * share),
        working_set=np.where(moves, moved, working_set),
        host_link=items.said.copies_by_host & (items.category == "memcpy").to_numpy(),
        peer_link=communication | (items.said.copies_between_devices & (items.category == "memcpy").to_numpy()),
        unknown_link=_unknown_link(communication, sent),
        estimated=estimated & ~copies,
    )


def _generated_families(names: pd.Series) -> npt.NDArray[np.object_]:
    """Return the families of kernels that torch.compile generated, by name; they may have no op, as in a CUDA graph."""
    codes, distinct = pd.factorize(names)
    kernels = [generated(str(name)) for name in distinct]
    return np.array([*(each.family if each else "" for each in kernels), ""], dtype=object)[codes]


def _moved(items: WorkItems, communication: Bools, sent: npt.NDArray[np.object_]) -> Floats:
    """Return the bytes of copies and of communication; NaN for messages whose size is not recorded."""
    moved = items.bytes.astype(np.float64) * _touches(items)
    moved[communication] = [each.carried if each.sized else np.nan for each in sent]
    return moved


def _unknown_link(communication: Bools, sent: npt.NDArray[np.object_]) -> Bools:
    unknown = np.zeros(len(communication), dtype=bool)
    unknown[communication] = [not each.known for each in sent]
    return unknown


def _touches(items: WorkItems) -> Ints:
    """Return how often each copy accesses device memory: twice (read and write) within a device, else once."""
    within = (items.category == "memcpy").to_numpy() & ~items.said.copies_by_host & ~items.said.copies_between_devices
    return np.where(within, 2, 1)


def _share(cost_op: Rows, replay: Rows, duration: Ints, able: Bools | None = None) -> Floats:
    """Return each item's fraction of its op's cost in one replay, by duration; equal fractions if all durations are 0.

    If any item of an op is `able`, the cost is split only over those.
    """
    replays = int(replay.max(initial=-1)) + 2
    _, group = np.unique(cost_op.astype(np.int64) * replays + replay, return_inverse=True)
    participates = np.ones(len(group), dtype=bool)
    if able is not None:
        participates = able | (np.bincount(group, weights=able)[group] == 0)
    weight = duration * participates
    total, count = np.bincount(group, weights=weight), np.bincount(group, weights=participates)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total[group] > 0, weight / total[group], participates / count[group])


def _precision(
    items: WorkItems, family: npt.NDArray[np.object_], precision: npt.NDArray[np.object_], tf32: bool
) -> npt.NDArray[np.object_]:
    matrix = np.isin(family, _TF32_FAMILIES)
    precision[(precision == "fp32") & (items.said.uses_tf32 | (matrix & tf32))] = "tf32"
    return precision


def _numbers(number: Rows, values: list[int]) -> Floats:
    return np.array([*values, np.nan], dtype=np.float64)[number]


def _names(number: Rows, values: list[str]) -> npt.NDArray[np.object_]:
    return np.array([*values, ""], dtype=object)[number]


_CALLS = ("c10d::", "nccl:", "_c10d_functional::", "vllm::", "_C_custom_ar::", "sglang::", "sgl_kernel::")
"""Prefixes of ops of torch and of serving engines that call a collective, and of the ranges around its launch."""


def messages(host: pd.DataFrame, names: pd.Series, op: Rows) -> npt.NDArray[np.object_]:
    """Return a Message for each item, given its name and the host row of its op; None if it is not communication."""
    communicates = np.flatnonzero(is_communication(names))
    ops = op[communicates]
    recorded = take((host["name"] == RECORDED_AS).to_numpy(), ops, False)
    codes, distinct = pd.factorize(np.where(recorded, take(host["values"].cat.codes.to_numpy(), ops), -1))
    parsed = np.array([message(host["values"].cat.categories[code]) if code >= 0 else Message() for code in distinct])
    result = np.full(len(names), None, dtype=object)
    result[communicates] = parsed[codes]
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
