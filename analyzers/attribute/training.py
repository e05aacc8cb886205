"""Recognizes training, and the work of the backward pass and of the optimizer, by ops."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.kernel_names import matching
from tracekit.analyzers.attribute.nesting import Nest, nearest, take
from tracekit.analyzers.attribute.origin import Origin
from tracekit.analyzers.attribute.recorded_ranges import engine_of, engine_of_ops
from tracekit.analyzers.results import Runtime

Bools = npt.NDArray[np.bool_]

_ENGINE = re.compile(r"autograd::engine::evaluate_function")
_OPTIMIZER = re.compile(r"Optimizer\.")
_MOSTLY = 0.5


def trains(host: pd.DataFrame) -> bool:
    """Return whether the trace contains a backward pass, or a step of an optimizer of torch.optim."""
    is_op = (host["category"] == "op").to_numpy()
    return bool(_is_optimizer_range(host).any() or (is_op & is_backward_op(host)).any())


def in_optimizer(host: pd.DataFrame, origin: Origin) -> Bools:
    """Return which items were issued inside a range of torch.optim (Optimizer.step#..., Optimizer.zero_grad#...)."""
    return Nest(host, _is_optimizer_range(host)).around(origin.thread, origin.time_ns) >= 0


def is_backward(host: pd.DataFrame, origin: Origin, ops: Nest) -> Bools:
    """Return which items belong to the backward pass.

    They are issued by its ops, or outside them on the thread of autograd's engine, such as the collectives of
    DistributedDataParallel.
    """
    backward = backward_ops(host, ops)
    by_op = _is_under_chosen(backward, origin, ops)
    outermost = ops.parent < 0
    thread = host["thread"].to_numpy()[ops.rows[outermost]]
    size = int(max(thread.max(initial=-1), np.max(origin.thread, initial=-1))) + 1
    total = np.bincount(thread, minlength=size)
    engine = np.bincount(thread, weights=backward[outermost], minlength=size) > _MOSTLY * total
    return by_op | take(engine, origin.thread, absent=False)


def is_recorded(host: pd.DataFrame, origin: Origin, ops: Nest) -> Bools:
    """Return which items were issued by ops with a sequence number of autograd, or by ops inside these."""
    return _is_under_chosen(host["sequence"].to_numpy()[ops.rows] >= 0, origin, ops)


def _is_under_chosen(chosen: Bools, origin: Origin, ops: Nest) -> Bools:
    """Return which items have an op, or an op around it, among the chosen ops of the nest."""
    at = np.where(origin.op >= 0, np.searchsorted(ops.rows, origin.op), -1)
    return take(nearest(ops.parent, chosen), at) >= 0


def backward_ops(host: pd.DataFrame, ops: Nest) -> Bools:
    """Return, for each op of the nest, whether autograd's engine evaluates it, or it names its forward op's thread."""
    return is_backward_op(host)[ops.rows]


def is_backward_op(host: pd.DataFrame) -> Bools:
    """Return which host rows are ops of the backward pass."""
    named = (host["forward_thread"].to_numpy() > 0) & (host["sequence"].to_numpy() >= 0)
    return named | matching(host["name"], _ENGINE)


def _is_optimizer_range(host: pd.DataFrame) -> Bools:
    return (host["category"] == "range").to_numpy() & matching(host["name"], _OPTIMIZER)


def runtime_of(host: pd.DataFrame, *, training: bool) -> Runtime:
    """Return what runs the model: a serving engine if its ranges or ops are recorded, else training or an inference
    script."""
    names = [str(name) for name in host["name"].unique()]
    for name in names:
        if engine := engine_of(name):
            return engine
    return "training" if training else engine_of_ops(names)
