"""Distinguish the processes and threads of a report.

Correlation ids and autograd's sequence numbers repeat across processes.
"""

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.readers.nsys.database import Database
from tracekit.analyzers.readers.nsys.strings import Strings

Ints = npt.NDArray[np.int64]

_THREAD_BITS = 24
_ID_BITS = 32
_LARGEST_PID = 0xFFFFFF


def process_of(global_id: Ints) -> Ints:
    """Return the part of a globalTid or globalPid that identifies the process (and machine)."""
    return global_id >> _THREAD_BITS


def pid_of(global_id: Ints) -> Ints:
    return process_of(global_id) & _LARGEST_PID


def tid_of(global_id: Ints) -> Ints:
    return global_id & _LARGEST_PID


class Processes:
    """Numbers the processes that `global_ids` (of threads or processes; negative: not recorded) belong to."""

    def __init__(self, *global_ids: Ints) -> None:
        ids = np.concatenate(global_ids)
        self._known = np.unique(process_of(ids[ids >= 0]))

    def unique_ids(self, ids: Ints, global_id: Ints) -> Ints:
        """Make ids (32 bits; others are -1) unique across processes; those of the first process stay as recorded.

        Ids without a process belong to the only process, or to a separate one if there are several.
        """
        number = np.searchsorted(self._known, process_of(global_id))
        nowhere = len(self._known) if len(self._known) > 1 else 0
        number = np.where(global_id >= 0, number, nowhere)
        return np.where((ids >= 0) & (ids >> _ID_BITS == 0), ids + (number << _ID_BITS), -1)

    def __len__(self) -> int:
        return len(self._known)


def thread_names(database: Database, strings: Strings, global_tids: Ints, processes: int) -> tuple[str, ...]:
    """Return thread names for display: id and name, and the process if the report has several."""
    rows = database.read("ThreadNames", {"nameId": -1, "globalTid": -1}, varying={"priority": 0})
    order = np.argsort(rows["priority"], kind="stable")
    named = dict(zip(rows["globalTid"][order].tolist(), strings.of(rows["nameId"][order]), strict=True))
    ids = zip(pid_of(global_tids).tolist(), tid_of(global_tids).tolist(), global_tids.tolist(), strict=True)
    return tuple(_thread_name(pid, tid, str(named.get(number, "")), processes > 1) for pid, tid, number in ids)


def _thread_name(pid: int, tid: int, name: str, with_process: bool) -> str:
    process = f"process {pid}, " if with_process else ""
    return f"{process}thread {tid}" + (f" ({name})" if name else "")
