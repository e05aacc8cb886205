"""The analysis of what a capture or `tracekit analyze -o` wrote is in the cache already."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pandas.testing import assert_frame_equal

from tracekit.analyzers.trace import cache, reading
from tracekit.answer import analyzing
from tracekit.cli import main
from tracekit.profiling import write_outputs
from tracekit.reports.answer.export import to_json

SAMPLE = Path(__file__).parents[1] / "examples" / "traces" / "h200_bert_prefill.json.gz"


@pytest.fixture(autouse=True)
def everything_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(cache, "LEAST_ROWS", 1)


def test_the_first_look_reads_nothing_and_sees_the_same(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(SAMPLE, run / "trace.json.gz")
    captured = write_outputs(run)
    assert len(list(cache.folder().iterdir())) == 1
    read_again = analyzing.analyze(run, use_cache=False)

    monkeypatch.delattr(reading, "load")
    seen = analyzing.analyze(run)
    assert to_json(seen) == to_json(read_again) == to_json(captured)
    assert_frame_equal(seen.work, read_again.work)


def test_an_annotated_trace_is_known_and_so_is_the_original(tmp_path, monkeypatch):
    target = tmp_path / "annotated.json.gz"
    done = CliRunner().invoke(main, ["analyze", str(SAMPLE), "-o", str(target)])
    assert done.exit_code == 0, done.stderr
    read_again = analyzing.analyze(SAMPLE, use_cache=False)

    monkeypatch.delattr(reading, "load")
    for path in (target, SAMPLE):
        assert to_json(analyzing.analyze(path)) == to_json(read_again)
