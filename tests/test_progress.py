"""The progress of long work: a bar in a terminal, for what takes long; a pipe gets nothing of it."""

import io
import json
import re
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from tracekit.analyzers.core import counted, progressed, watching
from tracekit.analyzers.trace import load
from tracekit.cli import _progress, main
from tracekit.measure import interleaved
from tracekit.measure.worker import Worker

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, after_s: float) -> str:
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(_progress, "SHOWN_AFTER_S", after_s)
    with _progress.shown_progress():
        for each in counted(range(3), "reading [red]ranks\x1b[2J"):
            time.sleep(0.15)
            progressed("inside", each, 2)
    return stderr.getvalue()


def test_long_work_shows_what_is_done_and_what_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(monkeypatch, Terminal(), 0.05))
    assert "reading [red]ranks" in plain
    assert "1 of 3" in plain and "2 of 3" in plain
    assert re.search(r"00:0\d left", plain)
    assert "\x1b" not in plain


def test_short_work_and_a_pipe_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), 60) == ""
    assert shown(monkeypatch, io.StringIO(), 0) == ""


def test_work_inside_other_work_ends_with_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that failed in the middle, as in another process, leaves no bar behind."""
    monkeypatch.setattr(_progress, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr("sys.stderr", Terminal())
    bars = _progress._Bars()
    for what, done in (("points", 0), ("steps", 1), ("points", 1)):
        bars.see(what, done, 4)
    assert [task.description for task in bars._drawn.tasks] == ["points"]
    bars.see("points", 4, 4)
    assert bars._drawn is None


def seen_of(act) -> list[tuple[str, int, int]]:
    seen: list[tuple[str, int, int]] = []
    with watching(lambda *progress: seen.append(progress)):
        act()
    return seen


def test_reading_a_trace_counts_its_bytes(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": f"op {at}", "pid": 1, "tid": 1, "ts": at, "dur": 1} for at in range(10**5)
    ]
    path = tmp_path / "[big].json"
    path.write_text(json.dumps({"traceEvents": events}))
    size = path.stat().st_size // 10**6
    seen = seen_of(lambda: load(path))
    assert {(what, total) for what, _, total in seen} == {("reading [big].json, MB", size)}
    assert seen[-1][1] == size
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def count_to_three() -> None:
    for _ in counted(range(3), "counting"):
        pass


@pytest.mark.usefixtures("no_models")
def test_work_in_another_process_is_seen_here() -> None:
    with Worker() as worker:
        seen = seen_of(lambda: worker.call(count_to_three))
    assert seen[0] == ("counting", 0, 3)
    assert seen[-1] == ("counting", 3, 3)


def test_a_comparison_counts_its_steps() -> None:
    side = interleaved.Runnable(lambda _: None, nullcontext)
    clock = interleaved.HostClock()
    seen = seen_of(lambda: interleaved.compare(side, side, clock, budget_s=0.01))
    assert {what for what, _, _ in seen} == {"timing steps"}
    assert seen[-1][1] == seen[-1][2] > 0


def test_a_command_writes_no_control_characters_into_a_pipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from click.testing import CliRunner

    monkeypatch.setattr(_progress, "SHOWN_AFTER_S", 0.0)
    trace = Path(__file__).parents[1] / "examples" / "traces" / "h200_gpt2_prefill.json.gz"
    result = CliRunner().invoke(main, ["analyze", str(trace), "--no-cache", "-o", str(tmp_path / "a.json")])
    assert result.exit_code == 0
    assert not CONTROL.search(result.stderr)
