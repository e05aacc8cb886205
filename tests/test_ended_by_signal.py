"""A command that SIGTERM or Ctrl-C ends leaves neither temporary nor half-written files."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from tracekit.analyzers.trace import cache
from tracekit.cli import main
from tracekit.reports.viewer import write

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")

_STALLED = """
import pathlib, sys, time
from tracekit.reports.viewer import write

def stalled(*_):
    pathlib.Path({ready!r}).touch()
    time.sleep(600)

write.events = stalled
sys.argv = ["tracekit", *{arguments!r}]
from tracekit.cli import main
main(prog_name="tracekit")
"""
_LONGEST_S = 300.0


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"k{at}",
            "pid": 0,
            "tid": 7,
            "ts": 10 * at,
            "dur": 5,
            "args": {"device": 0},
        }
        for at in range(1, 500)
    ]
    path = tmp_path / "in" / "trace.json.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    return path


@pytest.fixture(autouse=True)
def _signals_as_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the usual handlers, because a background process inherits that Ctrl-C and hang-ups are ignored."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def signalled(number: int) -> Callable[..., Any]:
    """Return a function in which a signal arrives."""

    def function(*_: Any, **__: Any) -> None:
        signal.raise_signal(number)
        pytest.fail("the signal was ignored")

    return function


def status(*arguments: object) -> int:
    return CliRunner().invoke(main, list(map(str, arguments))).exit_code


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("number", "ended"), [(signal.SIGTERM, 143), (signal.SIGINT, 1), (signal.SIGHUP, 129)], ids=str
)
def test_annotate(tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, number: int, ended: int) -> None:
    """The signal arrives while the findings are written."""
    monkeypatch.setattr(write, "events", signalled(number))
    assert status("analyze", trace, "-o", tmp_path / "out" / "annotated.json.gz") == ended
    assert (tmp_path / "out").is_dir() and files(tmp_path / "out") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_trace_that_is_replaced_stays_whole(trace: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    before = trace.read_bytes()
    monkeypatch.setattr(write, "events", signalled(number))
    assert status("analyze", trace, "-o", trace) != 0
    assert (files(trace.parent), trace.read_bytes()) == (["trace.json.gz"], before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_report(tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The signal arrives between writing the file and renaming it."""
    monkeypatch.setattr(Path, "replace", signalled(number))
    assert status("analyze", trace, "--no-cache", "-o", tmp_path / "out" / "page.html") != 0
    assert (tmp_path / "out").is_dir() and files(tmp_path / "out") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_cache(tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The signal arrives in the middle of an entry."""

    def half_saved(_: object, file: Any) -> None:
        file.write(b"x")
        signalled(number)()

    monkeypatch.setattr(cache, "LEAST_ROWS", 1)
    monkeypatch.setattr(cache, "store", _with(cache.store, save=half_saved))
    assert status("analyze", trace) != 0
    assert (tmp_path / "cache").is_dir() and files(tmp_path / "cache") == []


def _with(module: ModuleType, **changed: object) -> ModuleType:
    """Return a copy of a module with changed attributes."""
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module) | changed)
    return copy


def test_a_process_ends_with_the_status_of_the_signal(tmp_path: Path, trace: Path) -> None:
    ready, out = tmp_path / "ready", tmp_path / "out"
    code = _STALLED.format(ready=str(ready), arguments=["analyze", str(trace), "-o", str(out / "annotated.json.gz")])
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + _LONGEST_S
    while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ready.exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=_LONGEST_S) == 143
    assert files(out) == []
