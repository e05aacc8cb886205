"""Ctrl-C while several processes read."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kineto_files import op

from tracekit.analyzers.trace.kineto.chunks import CHUNK_BYTES
from tracekit.analyzers.trace.kineto.parallel import ALONE_CHUNKS

ROOT = Path(__file__).parents[2]
ENOUGH_BYTES = (ALONE_CHUNKS + 4) * CHUNK_BYTES


def children(process):
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in listed.read_text().split()]


def is_alive(pid):
    return Path(f"/proc/{pid}").exists()


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return value


@pytest.mark.skipif(not Path("/proc/self/task").exists() or os.cpu_count() == 1, reason="needs /proc and two cores")
@pytest.mark.parametrize("named", ["-", "pipe"])
def test_an_interruption_ends_it_without_traces(tmp_path, named):
    """The end of the trace never comes, so that the signal surely arrives while it is read."""
    pipe = tmp_path / "trace.json"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "tracekit", "analyze", "-" if named == "-" else str(pipe)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "caches")},
        start_new_session=True,
    )
    events = b",".join(json.dumps(op(f"op {i}", ts=float(i))).encode() for i in range(1000)) + b","
    stream = process.stdin if named == "-" else pipe.open("wb")
    with stream:
        stream.write(b'{"traceEvents": [')
        for _ in range(ENOUGH_BYTES // len(events) + 1):
            stream.write(events)
        stream.flush()
        workers = until(lambda: children(process))
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, said = process.communicate(timeout=20) if named == "pipe" else (None, process.stderr.read())
        assert process.wait(20) in (1, 130)
    assert b"Traceback" not in said
    until(lambda: not any(map(is_alive, workers)), 10)
    assert not (tmp_path / "caches").exists()
