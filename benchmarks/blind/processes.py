"""Runs work in separate processes, which may fail or hang without affecting the others."""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

Answer = tuple[str, dict[str, Any]]
Work = Callable[[tuple[str, ...]], Iterator[Answer]]
"""Yields the name and the row of each given name."""

_FORK = multiprocessing.get_context("fork")


def answers(work: Work, names: tuple[str, ...], limit_s: float) -> dict[str, dict[str, Any]]:
    """Return the row of each name. A name that takes too long or ends its process gets an error; a new one goes on."""
    rows: dict[str, dict[str, Any]] = {}
    while left := tuple(name for name in names if name not in rows):
        receiver, sender = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_send, args=(work, left, sender))
        process.start()
        sender.close()
        why = _receive(receiver, rows, len(names), limit_s)
        process.kill()
        process.join()
        if why:
            rows[next(name for name in left if name not in rows)] = {"error": why}
    return rows


def _receive(receiver: Any, rows: dict[str, dict[str, Any]], wanted: int, limit_s: float) -> str:
    """Return why no more rows came; "" if all came."""
    while len(rows) < wanted:
        if not receiver.poll(limit_s):
            return f"it took more than {limit_s:.0f} s"
        try:
            name, row = receiver.recv()
        except EOFError:
            return "its process ended without an answer"
        rows[name] = row
    return ""


def _send(work: Work, names: tuple[str, ...], sender: Any) -> None:
    for answer in work(names):
        sender.send(answer)


def side_by_side(tasks: list[Callable[[], object]], at_once: int, limit_s: float) -> None:
    """Run the tasks in this many processes, and end those that are late. Their results are not returned."""
    waiting, running = list(tasks), []
    end = time.monotonic() + limit_s
    while (waiting or running) and time.monotonic() < end:
        while waiting and len(running) < at_once:
            running.append(_FORK.Process(target=waiting.pop(0)))
            running[-1].start()
        time.sleep(0.2)
        running = [process for process in running if process.is_alive()]
    for process in running:
        process.kill()
