"""Workers end with the process that started them, and leave no file, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MEASURES = """
import signal, sys
from pathlib import Path
sys.path[:0] = {folders!r}
from tracekit.cli._progress import ending_in_order
from tracekit.measure.worker import Worker
from test_worker_ends import works_long
with ending_in_order(), Worker(verbose=True) as worker:
    worker.call(works_long, Path("started"))
"""


def works_long(started: Path) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(dir="."):
        started.with_suffix(".new").write_text(str(os.getpid()))
        started.with_suffix(".new").rename(started)
        time.sleep(120)


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
        return "Z" not in Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False


def waited(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(condition())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_worker_ends_when_its_parent_does(tmp_path, number, no_models):
    code = MEASURES.format(folders=[str(no_models), str(Path(__file__).parent)])
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL)
    started = tmp_path / "started"
    assert waited(started.is_file)
    worker = int(started.read_text())
    assert is_running(worker)
    parent.send_signal(number)
    parent.wait(timeout=30)
    assert waited(lambda: not is_running(worker))
    assert [path.name for path in tmp_path.iterdir()] == ["started"]
