"""Summarizes all ranks in several processes, each of which reads one trace at a time."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from subprocess import Popen
from typing import Any

from tracekit.analyzers.core import (
    InputError,
    MissingPackageError,
    TracekitError,
    answer_messages,
    cores,
    installing,
    receive,
    send,
    started_process,
)
from tracekit.analyzers.ranks import RankSummary, summarize
from tracekit.analyzers.trace import ALONE, cache, is_url, reading, release_freed, store

ALONE_BYTES = 8 << 20
"""A trace of fewer bytes is read in this process, because starting another takes longer."""
_TRIES = 2
_LOST = "The process that read it ended (killed, or out of memory)."


@dataclass(frozen=True)
class Answer:
    """The summary of a rank's trace, or the reason why there is none."""

    path: str
    summary: RankSummary | None
    why: str = ""


def summary_of(path: str, use_cache: bool = True) -> Answer:
    """Summarize a trace. An error of reading it is returned as an answer."""
    try:
        if not use_cache:
            return Answer(path, summarize(reading.load(path)))
        return Answer(
            path, cache.recall(path, RankSummary, lambda: summarize(reading.load(path)), worth=lambda _: True)
        )
    except (TracekitError, OSError, MemoryError) as error:
        return Answer(path, None, getattr(error, "why", "") or getattr(error, "what", "") or str(error))


def packed(answer: Answer) -> bytes:
    """Return an answer for another process, which knows the path."""
    why = answer.why.encode("utf-8", "replace").decode()
    return store.to_bytes(Answer("", answer.summary, why))


def unpacked(message: bytes, path: str) -> Answer:
    """Return the answer that another process packed."""
    return replace(store.from_bytes(message, Answer), path=path)


def _summary(path: str, *, use_cache: bool) -> bytes:
    """Summarize one trace in a process of its own, without starting others."""
    ALONE.set(True)
    try:
        return packed(summary_of(path, use_cache))
    finally:
        release_freed()


def main() -> None:
    """Answer paths with the summaries of their traces."""
    answer_messages(lambda asked: _summary(asked[1:].decode("utf-8", "surrogateescape"), use_cache=asked[:1] == b"1"))


def summaries(paths: Sequence[str], workers: int | None = None, *, use_cache: bool = True) -> Iterator[Answer]:
    """Yield one answer per path, in order. If its process ends before it answers, a path is tried again."""
    workers = min(cores() if workers is None else workers, len(paths))
    if workers < 2 or not sys.executable or (_bytes(paths) < ALONE_BYTES):
        yield from (summary_of(path, use_cache) for path in paths)
        return
    idle: SimpleQueue[_Worker] = SimpleQueue()
    everyone = [_Worker(use_cache) for _ in range(workers)]
    for worker in everyone:
        idle.put(worker)
    try:
        with ThreadPoolExecutor(workers) as threads:
            yield from threads.map(lambda path: _ask(idle, path), paths)
    finally:
        for worker in everyone:
            worker.close()


def _ask(idle: "SimpleQueue[_Worker]", path: str) -> Answer:
    worker = idle.get()
    try:
        return next((answer for _ in range(_TRIES) if (answer := worker.ask(path))), Answer(path, None, _LOST))
    finally:
        idle.put(worker)


class _Worker:
    """A process that is started for its first path, and again if it has ended."""

    def __init__(self, use_cache: bool) -> None:
        self._flag = b"1" if use_cache else b"0"
        self._process: Popen[bytes] | None = None

    def ask(self, path: str) -> Answer | None:
        """Return the answer for a path; None if the process ended before."""
        process = self._process = self._process or started_process(
            __name__, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        )
        assert process.stdin and process.stdout
        with suppress(OSError):
            send(process.stdin, self._flag + path.encode("utf-8", "surrogateescape"))
            if message := receive(process.stdout):
                return unpacked(message, path)
        self.close()
        return None

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]
        self._process = None


def _bytes(paths: Sequence[str]) -> int:
    """Return the total size of local files; a URL counts as a large one."""
    size: Callable[[str], int] = lambda path: ALONE_BYTES if is_url(path) else Path(path).stat().st_size  # noqa: E731
    total = 0
    for path in paths:
        with suppress(OSError):
            total += size(path)
    return total


LOCAL = "local:"
_LOST_WORKERS = "Every worker that read it ended (killed, or out of memory)."
_CONNECT_S = 10
_EXAMPLES = "Say local:4 for four processes here, or the address of a scheduler: tcp://host:8786."


def summaries_of_cluster(cluster: str, paths: Sequence[str], *, use_cache: bool = True) -> Iterator[Answer]:
    """Yield one answer per path, in order. If a worker is lost, another one reads its trace again.

    `cluster` is local:N, or the address of a scheduler. Its workers need tracekit and access to the same paths.
    """
    with _client(cluster) as client:
        for path, future in zip(paths, client.map(_summary, paths, use_cache=use_cache, pure=False), strict=True):
            yield _answer(path, future)


def _answer(path: str, future: Any) -> Answer:
    from distributed import KilledWorker

    try:
        return unpacked(future.result(), path)
    except KilledWorker:
        return Answer(path, None, _LOST_WORKERS)
    finally:
        future.release()


@contextmanager
def _client(cluster: str) -> Iterator[Any]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        what, why = "--cluster needs an optional package.", "distributed is not installed."
        raise MissingPackageError(what, why, installing("distributed")) from error
    if not cluster.startswith(LOCAL):
        with _connected(Client, cluster) as client:
            yield client
        return
    workers = {"n_workers": _workers(cluster), "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**workers) as local, Client(local) as client:
        yield client


def _connected(client: Any, address: str) -> Any:
    try:
        return client(address, timeout=_CONNECT_S)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"The cluster {address} cannot be reached.", f"{type(error).__name__}.", _EXAMPLES) from error


def _workers(cluster: str) -> int:
    number = cluster.removeprefix(LOCAL)
    if not number.isdecimal() or int(number) < 1:
        raise InputError(
            f"{cluster} is not a cluster.", f"{number or 'Nothing'} is not a number of workers.", _EXAMPLES
        )
    return int(number)
