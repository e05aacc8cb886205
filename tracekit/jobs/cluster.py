"""Summarizes all ranks on the workers of a Dask cluster, which already runs or is started here."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tracekit.analyzers.errors import InputError, MissingPackageError
from tracekit.analyzers.packages import installing
from tracekit.analyzers.readers.freed_memory import release_freed
from tracekit.analyzers.readers.pool import ALONE
from tracekit.jobs.summary_worker import Answer, packed, summary_of, unpacked

LOCAL = "local:"
_LOST = "Every worker that read it ended (killed, or out of memory)."
_CONNECT_S = 10
_EXAMPLES = "Say local:4 for four processes here, or the address of a scheduler: tcp://host:8786."


def summaries_of_cluster(cluster: str, paths: Sequence[str], *, use_cache: bool = True) -> Iterator[Answer]:
    """Yield one answer per path, in order. If a worker is lost, another one reads its trace again.

    `cluster` is local:N, or the address of a scheduler. Its workers need tracekit and access to the same paths.
    """
    with _client(cluster) as client:
        for path, future in zip(paths, client.map(_summary, paths, use_cache=use_cache, pure=False), strict=True):
            yield _answer(path, future)


def _summary(path: str, *, use_cache: bool) -> bytes:
    """Summarize one trace on a worker, without starting other processes."""
    ALONE.set(True)
    try:
        return packed(summary_of(path, use_cache))
    finally:
        release_freed()


def _answer(path: str, future: Any) -> Answer:
    from distributed import KilledWorker

    try:
        return unpacked(future.result(), path)
    except KilledWorker:
        return Answer(path, None, _LOST)
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
