"""Progress of long work: who does it counts what is done, and who started it may watch."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

TOLD_EVERY_S = 0.1
"""Least time between two reports of the same work, so that watching it does not slow it."""


@dataclass
class _Watch:
    tell: Callable[[str, int, int], None]
    what: str = ""
    told: float = 0.0

    def see(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what == self.what and done < total and now - self.told < TOLD_EVERY_S:
            return
        self.what, self.told = what, now
        self.tell(what, done, total)


_WATCH: ContextVar[_Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watching(tell: Callable[[str, int, int], None]) -> Iterator[None]:
    """Call `tell` with what is being done in this block, how much of it is done, and the total; at its end both are
    equal."""
    token = _WATCH.set(_Watch(tell))
    try:
        yield
    finally:
        _WATCH.reset(token)


def progressed(what: str, done: int, total: int) -> None:
    """Tell who watches how much of some work is done."""
    watch = _WATCH.get()
    if watch:
        watch.see(what, done, total)


def counted(items: Collection[T], what: str) -> Iterator[T]:
    """Yield the items, and tell who watches how many of them the caller is done with."""
    for done, item in enumerate(items):
        progressed(what, done, len(items))
        yield item
    progressed(what, len(items), len(items))
