"""Ranges around the backward ops of each module, for Nsight Systems.

torch.profiler ties backward work to the module of its forward op by sequence numbers. A report of nsys has none, so
that the ranges are emitted where the work is launched: around each autograd node, on the thread that runs it.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

from tracekit.run import require

_RECORDS = "NSYS_PROFILING_SESSION_ID"
"""Variable of the environment that nsys sets for the program that it starts."""
_NAMED = "tracekit"


def is_recorded_by_nsys() -> bool:
    return _RECORDS in os.environ


class BackwardRanges:
    """Gives autograd nodes the range of the innermost module in whose forward they were made."""

    def __init__(self, push: Callable[[str], object], pop: Callable[[], object]) -> None:
        self._push, self._pop = push, pop
        self._next_number = require("torch")._C._autograd._get_sequence_nr

    def now(self) -> int:
        """Return the number that the next node of this thread gets."""
        return int(self._next_number())

    def name(self, output: Any, since: int, name: str) -> None:
        """Name the nodes between the output of a module and what was there before its call, but for those that a module
        within it has named. Nodes that accumulate gradients outlive the step and keep no name."""
        left, seen = [each.grad_fn for each in _tensors(output) if each.grad_fn], set[Any]()
        while left:
            node = left.pop()
            if node in seen or not since <= node._sequence_nr() < self.now():
                continue
            seen.add(node)
            if _NAMED not in node.metadata:
                node.metadata[_NAMED] = name
                node.register_prehook(lambda *_: self._ignored(self._push(name)))
                node.register_hook(lambda *_: self._ignored(self._pop()))
            left += [each for each, _ in node.next_functions if each is not None]

    @staticmethod
    def _ignored(_: object) -> None:
        """Return None: what a hook returns would replace gradients."""


def _tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in a module's output."""
    if isinstance(value, require("torch").Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)
