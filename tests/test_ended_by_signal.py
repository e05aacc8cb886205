"""A command that is ended by SIGTERM or Ctrl-C leaves no temporary and no half-written file."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")

_STALLED = """
import pathlib, sys, time
import {module} as module

def stalled(*args, **options):
    pathlib.Path({ready!r}).touch()
    time.sleep(60)

{patch}
sys.argv = ["tracekit", *{arguments!r}]
from tracekit.cli import main
main(prog_name="tracekit")
"""


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


def ended(tmp_path: Path, module: str, patch: str, arguments: Sequence[str], number: int) -> int:
    """The exit status of a command that stalls in the patched function and is sent a signal there."""
    ready = tmp_path / "ready"
    code = _STALLED.format(module=module, patch=patch, arguments=[*map(str, arguments)], ready=str(ready))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    for _ in range(600):
        if ready.exists() or process.poll() is not None:
            break
        time.sleep(0.1)
    assert ready.exists()
    process.send_signal(number)
    return process.wait(timeout=30)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_annotate(tmp_path: Path, trace: Path, number: int) -> None:
    """Stalled while the findings are written."""
    patch = "module.events = stalled"
    arguments = ["annotate", trace, "-o", tmp_path / "out" / "found.json.gz"]
    status = ended(tmp_path, "tracekit.reports.findings.write", patch, arguments, number)
    assert status == {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 1}[number]
    assert files(tmp_path / "out") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_trace_that_is_replaced_stays_whole(tmp_path: Path, trace: Path, number: int) -> None:
    before = trace.read_bytes()
    ended(
        tmp_path, "tracekit.reports.findings.write", "module.events = stalled", ["annotate", trace, "-o", trace], number
    )
    assert (files(trace.parent), trace.read_bytes()) == (["trace.json.gz"], before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_report(tmp_path: Path, trace: Path, number: int) -> None:
    """Stalled between writing the file and renaming it."""
    arguments = ["report", trace, "-o", tmp_path / "out" / "page.html"]
    ended(tmp_path, "tracekit.reports.files", "module.Path.replace = stalled", arguments, number)
    assert files(tmp_path / "out") == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_cache(tmp_path: Path, trace: Path, number: int) -> None:
    """Stalled in the middle of an entry."""
    patch = "module.LEAST_ROWS = 1; module.store.save = lambda value, file: (file.write(b'x'), stalled())"
    ended(tmp_path, "tracekit.analyzers.cache", patch, ["analyze", trace], number)
    assert files(tmp_path / "cache") == []
