"""Runs checks within a budget of seconds, several at a time where they share no folder, and says how each ended."""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from benchmarks.smoke.checks import Check
from benchmarks.smoke.numbers import Ended, ImpossibleError

OK, FAILED, SKIPPED = "ok", "FAILED", "skipped"
_LINES = 12
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    name: str
    state: Literal["ok", "FAILED", "skipped"]
    seconds: float = 0.0
    why: str = ""


def run(checks: Sequence[Check], out: Path, *, gpu: bool, seconds: float, jobs: int) -> Iterator[Outcome]:
    """Run each check whose packages and device are here, until `seconds` are over, and yield them as they end.

    At most `jobs` run at a time. A check begins after those before it that share a folder with it.
    """
    out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + seconds
    waiting, begun = list(checks), dict[Future[Outcome], Check]()
    with ThreadPoolExecutor(jobs) as pool:
        while waiting or begun:
            for check in _free(waiting, list(begun.values()))[: jobs - len(begun)]:
                waiting.remove(check)
                begun[pool.submit(_tried, check, out, gpu, until)] = check
            for done in wait(begun, return_when=FIRST_COMPLETED).done:
                del begun[done]
                yield done.result()


def _free(waiting: Sequence[Check], begun: Sequence[Check]) -> list[Check]:
    """Return the waiting checks that share no folder with one before them, or the next one if it runs alone."""
    if any(check.alone for check in begun) or (waiting and waiting[0].alone):
        return [] if begun else list(waiting[:1])
    return [
        check
        for i, check in enumerate(waiting)
        if not any(check.folders & other.folders for other in (*begun, *waiting[:i]))
    ]


def _tried(check: Check, out: Path, gpu: bool, until: float) -> Outcome:
    missing = [name for name in check.needs if find_spec(name) is None]
    if missing:
        return Outcome(check.name, SKIPPED, why=f"{missing[0]} is not installed")
    if check.on_gpu and not gpu:
        return Outcome(check.name, SKIPPED, why="it needs a GPU")
    if time.monotonic() > until:
        return Outcome(check.name, SKIPPED, why="the seconds are over")
    return outcome(check, out, gpu=gpu)


def outcome(check: Check, out: Path, *, gpu: bool) -> Outcome:
    """Run one check. It fails by its status, its time, a missing file or an impossible number."""
    began = time.monotonic()
    why = _failure(check, out, gpu)
    return Outcome(check.name, FAILED if why else OK, time.monotonic() - began, why)


def _failure(check: Check, out: Path, gpu: bool) -> str:
    before = time.time()
    try:
        ended = subprocess.run(
            check.command, cwd=out, env=_environment(out), capture_output=True, text=True, timeout=check.seconds
        )
    except subprocess.TimeoutExpired as error:
        return f"not done after {check.seconds:.0f} s\n{_last(_text(error.stdout) + _text(error.stderr))}"
    printed = _last(ended.stdout + ended.stderr)
    if ended.returncode not in check.statuses:
        return f"status {ended.returncode}\n{printed}"
    folder = out / check.folder
    absent = [name for name in check.files if not _is_new(folder / name, before)]
    if absent:
        return f"not written: {', '.join(absent)}\n{printed}"
    try:
        check.judge(Ended(out, folder, ended.stdout, gpu))
    except ImpossibleError as error:
        return str(error)
    except (LookupError, TypeError, ValueError, OSError, AttributeError) as error:  # output of another shape
        return f"{type(error).__name__}: {error}\n{printed}"
    return ""


def _is_new(path: Path, before: float) -> bool:
    """Return whether a file has content and was written by the command; clocks of file systems are coarse."""
    return path.exists() and path.stat().st_size > 0 and path.stat().st_mtime > before - 2


def _environment(out: Path) -> dict[str, str]:
    """Return the environment of a command: this checkout, and no file of the user's."""
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
    aside = {"XDG_CONFIG_HOME": str(out / "config"), "XDG_CACHE_HOME": str(out / "cache")}
    return {**os.environ, **aside, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(f"    {line[:240]}" for line in lines[-_LINES:])
