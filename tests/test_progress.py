"""The progress of long jobs: in a terminal alone, and only when they take long."""

import io
import time
from collections.abc import Iterator

import pytest

from tracekit.cli import _output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def slow() -> Iterator[int]:
    for each in range(3):
        time.sleep(0.2)
        yield each


def progress(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, after_s: float) -> str:
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(_output, "SHOWN_AFTER_S", after_s)
    assert list(_output.counted(slow(), 3, "reading ranks")) == [0, 1, 2]
    return stderr.getvalue()


def test_a_long_job_shows_what_is_done_and_what_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = progress(monkeypatch, Terminal(), 0.05)
    assert "reading ranks" in shown
    assert "3/3" in shown


def test_a_short_job_and_a_pipe_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress(monkeypatch, Terminal(), 60) == ""
    assert progress(monkeypatch, io.StringIO(), 0) == ""
