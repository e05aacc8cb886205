"""FLOPs and bytes of each work item.

The cost of an op is split over its kernels by duration. FLOPs of products, convolutions and attention go to the kernels
that do them, not to those that transpose or copy for them. A copy has its own bytes, a collective those that it moves
over a link.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribution.items import Items
from tracekit.analyzers.attribution.kernel_names import (
    is_communication,
    is_helper,
    is_host_copy,
    is_peer_copy,
    says_tf32,
)
from tracekit.analyzers.attribution.messages import messages
from tracekit.analyzers.attribution.nesting import Rows, take
from tracekit.analyzers.costs.generated import generated
from tracekit.analyzers.roofline.op_costs import charged_to, price, with_ancestors

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_TF32_FAMILIES = ("gemm", "convolution")
_WITH_HELPERS = ("gemm", "convolution", "attention")


@dataclass(frozen=True)
class Costed:
    """One entry an item; NaN: unknown."""

    cost_op: Rows
    family: npt.NDArray[np.object_]
    precision: npt.NDArray[np.object_]
    flops: Floats
    bytes: Floats
    working_set: Floats
    """Bytes of the whole op that the item is part of."""
    host_link: Bools
    """Copies between host and device."""
    peer_link: Bools
    """Copies and collectives between devices."""
    estimated: Bools
    """Bytes are those of the op's inputs; FLOPs are unknown."""


def cost_items(
    host: pd.DataFrame, items: Items, op: Rows, replay: Rows, parent: Rows, tf32: bool, parameters: int | None
) -> Costed:
    """Costs of the items that come from these op rows; an op captured in a graph costs as much in each `replay` (-1: no
    replay). `tf32`: fp32 matrix products ran as TF32 by setting. `parameters`: the model's weights, where the trace
    says."""
    known = price(host, with_ancestors(parent, op), parameters)
    communication = is_communication(items.name)
    copies = (items.category != "kernel").to_numpy() & (items.bytes >= 0)
    cost_op = np.where(communication, -1, charged_to(known, parent, op))
    number = take(known.of_row, cost_op)
    part = _part(np.where(copies, -1, cost_op), replay, items.duration)
    estimated = take(known.estimated, number, absent=False)
    working_set = _numbers(number, [cost.bytes for cost in known.costs])
    family = _names(number, [cost.family for cost in known.costs])
    able = ~(is_helper(items.name) & np.isin(family.astype(str), _WITH_HELPERS))
    done = _part(np.where(copies, -1, cost_op), replay, items.duration, able)
    flops = np.where(estimated, np.nan, _numbers(number, [cost.flops for cost in known.costs]) * done)
    family = np.where(family == "", _generated_families(items.name), family)
    moves, moved = copies | communication, _moved(host, items, op, communication)
    return Costed(
        cost_op=cost_op,
        family=np.where(copies, "copy", family),
        precision=_precision(items, family, _names(number, [cost.precision for cost in known.costs]), tf32),
        flops=np.where(copies, 0.0, flops),
        bytes=np.where(moves, moved, working_set * part),
        working_set=np.where(moves, moved, working_set),
        host_link=is_host_copy(items.name) & (items.category == "memcpy").to_numpy(),
        peer_link=communication | (is_peer_copy(items.name) & (items.category == "memcpy").to_numpy()),
        estimated=estimated & ~copies,
    )


def _generated_families(names: pd.Series) -> npt.NDArray[np.object_]:
    """Of kernels that torch.compile generated, by their names: they may run without an op, as in a CUDA graph."""
    codes, distinct = pd.factorize(names)
    said = [generated(str(name)) for name in distinct]
    return np.array([*(each.family if each else "" for each in said), ""], dtype=object)[codes]


def _moved(host: pd.DataFrame, items: Items, op: Rows, communication: Bools) -> Floats:
    """Bytes of copies, and of communication where the trace says them (else NaN)."""
    moved = items.bytes.astype(np.float64) * _touches(items)
    of = messages(host, items.name, op)[communication]
    moved[communication] = [message.carried if message.known else np.nan for message in of]
    return moved


def _touches(items: Items) -> Ints:
    """How often a copy passes the memory of its device: read and written within it, else once."""
    within = (items.category == "memcpy").to_numpy() & ~is_host_copy(items.name) & ~is_peer_copy(items.name)
    return np.where(within, 2, 1)


def _part(cost_op: Rows, replay: Rows, duration: Ints, able: Bools | None = None) -> Floats:
    """Each item's part of its op's cost in one replay, by duration; equal parts where all durations are 0.

    Only items that are `able` take part, where an op has any.
    """
    replays = int(replay.max(initial=-1)) + 2
    _, group = np.unique(cost_op.astype(np.int64) * replays + replay, return_inverse=True)
    taking_part = np.ones(len(group), dtype=bool)
    if able is not None:
        taking_part = able | (np.bincount(group, weights=able)[group] == 0)
    weight = duration * taking_part
    total, count = np.bincount(group, weights=weight), np.bincount(group, weights=taking_part)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total[group] > 0, weight / total[group], taking_part / count[group])


def _precision(
    items: Items, family: npt.NDArray[np.object_], precision: npt.NDArray[np.object_], tf32: bool
) -> npt.NDArray[np.object_]:
    matrix = np.isin(family.astype(str), _TF32_FAMILIES)
    return np.where((precision == "fp32") & (says_tf32(items.name) | (matrix & tf32)), "tf32", precision)


def _numbers(number: Ints, values: list[int]) -> Floats:
    return take(np.array(values, dtype=np.float64), number, absent=np.nan)


def _names(number: Ints, values: list[str]) -> npt.NDArray[np.object_]:
    return np.array([*values, ""], dtype=object)[number]
