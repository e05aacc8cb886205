"""Mutates an input, runs tracekit on it in a process of its own, and checks what must hold for every input.

The exit status is 0, 1 or 2 (of a check also 3, inconclusive, and 4, an error), nothing is a bug of tracekit, it takes
at most 10 s and 1 GB, and JSON is JSON. Devices are busy for at least no time and at most all of it. Each event that a
plain parser sees is in a table or in the count of a problem. Device time is what a plain parser adds up, or a problem
says why not.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from .formats import FORMATS, Format, arguments, files_of
from .mutators import FOLDERS, crowd

LONGEST_S = 10
LARGEST_BYTES = 1 << 30
_KILLED_AT_BYTES = 6 << 30
_LOST = {"skipped-events", "implausible-time", "unpaired-events", "unknown-category", "more-events", "unread-table"}
_ALTERED = {"negative-duration", "missing-duration", "capped-duration", "unended-ranges", "repaired-events"}
_UNCOUNTED = {"truncated", "trailing-bytes", "dropped-events"}
"""Problems of a file that was cut off inside an event: what they lost cannot be counted."""


class FuzzError(AssertionError):
    """What does not hold for a mutated input."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and the tables that its trace has."""

    status: int
    out: str
    err: str
    cpu_s: float
    peak_bytes: int
    device_ns: int = 0
    events: int = 0
    devices: int = 1
    problems: tuple[tuple[str, int], ...] = ()


def run_one(name: str, seed: int, folder: Path) -> str:
    """Mutate an input, run a command on it, and return the outcome. Raises FuzzError if something does not hold."""
    chosen, chance = FORMATS[name], random.Random(f"{name} {seed}")
    original, mutated = files_of(chosen, chosen.tree()), _mutated(chosen, chance)
    _write({**chosen.around(), **mutated}, folder)
    command = arguments(chance.choice(chosen.commands), folder)
    ended = _run(command, folder / chosen.name if chosen.count else None)
    _check_end(ended, command)
    if chosen.count and ended.status == 0:
        _check_counts(chosen, mutated[chosen.name], original[chosen.name], ended)
    return "refused" if ended.status else "reported" if ended.problems else "read"


def _mutated(chosen: Format, chance: random.Random) -> dict[str, bytes]:
    """Return the mutated files: most often by their values, else by their bytes, and both for folders of several."""
    values, files = chance.random() < 0.7, None
    while files is None:
        tree = chosen.tree()
        for _ in range(chance.choice([1, 1, 2, 5, 20]) if values else 0):
            chance.choice(chosen.trees)(chance, tree if chosen.name else tree[chance.choice(list(tree))])
        try:
            files = files_of(chosen, tree)
        except Exception:  # whatever a writer of the format raises for a value that has no place in it
            continue
    if not values or chance.random() < 0.15:
        name = chance.choice(list(files))
        files[name] = chance.choice(chosen.bytes)(chance, files[name]) if files[name] else b""
    if not chosen.name and files and chosen.tree().keys() >= {"rank0.json"} and chance.random() < 0.7:
        (crowd if chance.random() < 0.03 else chance.choice(FOLDERS))(chance, files)
    return files


def _run(command: list[str], trace: Path | None) -> Ended:
    """Run a command in a child of this process, which has imported everything, with limits on time and memory."""
    beside = Path(os.environ["TRACEKIT_FUZZ"])
    out, err, facts = (beside / name for name in ("out", "err", "facts"))
    facts.write_text("{}")
    child = os.fork()
    if not child:
        _be_child(command, trace, out, err, facts)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    known = json.loads(facts.read_text() or "{}")
    known["problems"] = tuple(map(tuple, known.get("problems", ())))
    texts = (path.read_text("utf-8", "replace") for path in (out, err))
    return Ended(code, *texts, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, **known)


def _be_child(command: list[str], trace: Path | None, out: Path, err: Path, facts: Path) -> None:
    status = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (2 * LONGEST_S, 2 * LONGEST_S + 5))
        resource.setrlimit(resource.RLIMIT_AS, (_KILLED_AT_BYTES, _KILLED_AT_BYTES))
        signal.alarm(12 * LONGEST_S)
        for path, stream in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", closefd=False) for stream in (1, 2))
        if trace:
            facts.write_text(json.dumps(_tables(trace)))
        status = _status(command)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _status(command: list[str]) -> int:
    from tracekit.cli import main

    try:
        main(command, prog_name="tracekit")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _tables(path: Path) -> dict[str, Any]:
    """Return what the tables of a trace add up to; empty for one that is refused."""
    from tracekit.analyzers.core import TracekitError
    from tracekit.analyzers.trace import load

    try:
        trace = load(path, max_bytes=1 << 30)
    except TracekitError:
        return {}
    problems = [(str(code), int(n)) for code, n in zip(trace.problems["code"], trace.problems["count"], strict=True)]
    device_ns = sum(map(int, trace.device["duration_ns"]))
    devices, events = max(1, trace.device["device"].nunique()), len(trace.host) + len(trace.device)
    return {"device_ns": device_ns, "events": events, "devices": devices, "problems": problems}


def _check_end(ended: Ended, command: list[str]) -> None:
    said = ended.err[-600:]
    if ended.status not in (0, 1, 2) and not (ended.status in (3, 4) and command[0] == "check"):
        raise FuzzError(f"{command[0]} ended with {ended.status} after {ended.cpu_s:.1f} s of CPU: {said}")
    if "bug of tracekit" in ended.err or "Traceback" in ended.err:
        raise FuzzError(f"{command[0]}: {said}")
    if ended.status == 1 and not ended.err.strip() and not ended.out.strip():
        raise FuzzError(f"{command[0]} failed and said nothing")
    if ended.cpu_s > LONGEST_S or ended.peak_bytes > LARGEST_BYTES:
        raise FuzzError(f"{command[0]} took {ended.cpu_s:.1f} s of CPU and {ended.peak_bytes / 2**20:.0f} MiB")
    if "json" in command and ended.out.strip():
        _check_times(json.loads(ended.out, parse_constant=_refuse), ended.devices)


def _refuse(name: str) -> None:
    raise FuzzError(f"the output contains {name}")


def _check_times(document: dict[str, Any], devices: int) -> None:
    """Check that the devices are busy for at least no time, and for no more than all of it."""
    timeline = document.get("timeline")
    if not isinstance(timeline, dict):
        return
    for part in (timeline, *timeline["steps"]):
        wall, busy, idle = (part[name] or 0 for name in ("wall_us", "gpu_busy_us", "gpu_idle_us"))
        if not (0 <= busy <= wall * devices + 0.002 and idle >= 0):
            raise FuzzError(f"busy {busy} us and idle {idle} us of {wall} us")


def _check_counts(chosen: Format, data: bytes, original: bytes, ended: Ended) -> None:
    assert chosen.count is not None
    expected, codes = chosen.count(data, original), {code for code, _ in ended.problems}
    if _UNCOUNTED & codes:
        return
    told = sum(count for code, count in ended.problems if code in _LOST)
    if expected.events > ended.events + told:
        raise FuzzError(f"{expected.events - ended.events - told} events were lost: {ended.problems}")
    if expected.device_ns is None or codes & (_LOST | _ALTERED):
        return
    if abs(expected.device_ns - ended.device_ns) > max(ended.events, 1e-9 * expected.device_ns):
        raise FuzzError(
            f"device time is {ended.device_ns} ns, and the file states {expected.device_ns}: {ended.problems}"
        )


def warm(names: list[str], folder: Path) -> None:
    """Run every command once on its sound input in this process, so that its children have imported everything.

    Raises FuzzError if one is refused.
    """
    os.environ |= {"TRACEKIT_FUZZ": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    for name in names:
        chosen, sound = FORMATS[name], folder / "sound"
        files = files_of(chosen, chosen.tree())
        _write({**chosen.around(), **files}, sound)
        for command in chosen.commands:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as said:
                status = _status(arguments(command, sound))
            if status not in (0, 3):
                raise FuzzError(f"{' '.join(command)} refuses a sound {name}: {said.getvalue()}")


def _write(files: dict[str, bytes], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
