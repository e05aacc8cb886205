"""Infers the Kineto category of an event without one, because Kineto's builder of Perfetto traces leaves categories
out."""

import re
from collections.abc import Collection

_OP_ARGUMENTS = frozenset(("Input Dims", "Input type", "Sequence number", "Fwd thread id", "Concrete Inputs"))
_PROFILER_ARGUMENTS = frozenset(("External id", "Ev Idx", "Record function id"))
_OP_NAME = re.compile(r"\w+::\w|\w*Backward\d*\Z|autograd::")
_DEVICE_TRACK = re.compile(r"stream|GPU", re.IGNORECASE)
_DRIVER = re.compile(r"cu[A-Z]|hip[A-Z]\w*Module")
_OVERHEAD, _OVERHEAD_PID = "Overhead", -1


def inferred_category(name: str, arguments: Collection[str], pid: int | str, track: str, process: str) -> str:
    """Return the category of an event, from its arguments, its name, its process, and the names of its track and
    process."""
    if pid == _OVERHEAD_PID or _OVERHEAD in (process, track):
        return "overhead"
    if "Python id" in arguments or "Python module id" in arguments or "Python parent id" in arguments:
        return "python_function"
    if "cuda_sync_kind" in arguments:
        return "cuda_sync"
    if "cbid" in arguments:
        return "cuda_driver" if _DRIVER.match(name) else "cuda_runtime"
    if "grid" in arguments or "registers per thread" in arguments:
        return "kernel"
    if "bytes" in arguments and "stream" in arguments:
        return "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    if _DEVICE_TRACK.match(track):
        return "gpu_user_annotation"
    if not _PROFILER_ARGUMENTS.isdisjoint(arguments) or not _OP_ARGUMENTS.isdisjoint(arguments):
        is_op = not _OP_ARGUMENTS.isdisjoint(arguments) or _OP_NAME.match(name)
        return "cpu_op" if is_op else "user_annotation"
    return ""
