"""Processes that read the traces of a job's ranks, and may end early."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tracekit.analyzers.core import started_process
from tracekit.jobs import summaries

FOLDER = Path(__file__).parents[2] / "examples" / "ranks" / "sleep-2"
FILES = [str(FOLDER / f"rank-{number}.json.gz") for number in (0, 1)]

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _however_small(monkeypatch):
    monkeypatch.setattr(summaries, "ALONE_BYTES", 0)


def test_several_processes_answer_in_order():
    answers = list(summaries.summaries(FILES, workers=2))
    assert [answer.path for answer in answers] == FILES
    assert [answer.summary.rank for answer in answers] == [0, 1]


def test_processes_with_pyarrow_answer_a_command_that_does_not_load_it(tmp_path):
    pytest.importorskip("pyarrow")
    for number, file in enumerate(FILES):
        small = gzip.decompress(Path(file).read_bytes()).rstrip()
        large = small[:-1] + b" " * (5 << 20) + small[-1:]  # as a job that several processes read
        (tmp_path / f"rank-{number}.json").write_bytes(large)
    command = [sys.executable, "-m", "tracekit", "ranks", str(tmp_path), "--format", "json"]

    def answer(cache, *words):
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / cache)}
        done = subprocess.run([*command, *words], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    cold = answer("of processes", "--workers", "2")
    assert answer("of processes", "--workers", "2") == cold
    assert answer("of a cluster", "--cluster", "local:1") == cold
    assert answer("of a cluster", "--workers", "1") == cold


def run_instead(monkeypatch, folder, code):
    """Start processes that call `main` of a module of this code."""
    (folder / "run_instead.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(summaries, "started_process", lambda _, **options: started_process("run_instead", **options))


def test_what_a_lost_process_was_reading_is_read_again(monkeypatch, tmp_path):
    """The first process that is started ends at once."""
    mark = repr(str(tmp_path / "started"))
    once = f"import os; os.path.exists({mark}) or os.mkdir({mark}) or os._exit(1)"
    run_instead(monkeypatch, tmp_path, f"{once}\nfrom tracekit.jobs.summaries import main")
    assert [answer.summary.rank for answer in summaries.summaries(FILES, workers=2)] == [0, 1]


def test_a_trace_that_ends_every_process_is_said_so(monkeypatch, tmp_path):
    run_instead(monkeypatch, tmp_path, "raise SystemExit")
    answers = list(summaries.summaries(FILES, workers=2))
    assert [answer.summary for answer in answers] == [None, None]
    assert all("ended" in answer.why for answer in answers)
