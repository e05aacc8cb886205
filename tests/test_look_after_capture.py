"""The analysis of what a capture or `tracekit analyze -o` wrote is in the cache already."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pandas.testing import assert_frame_equal

from tracekit.analyzers import cache, readers
from tracekit.answers import full_analysis
from tracekit.cli import main
from tracekit.reports.export import to_json
from tracekit.runs.outputs import write_outputs

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
    read_again = full_analysis.analyze(run, use_cache=False)

    monkeypatch.delattr(readers, "load")
    seen = full_analysis.analyze(run)
    assert to_json(seen) == to_json(read_again) == to_json(captured)
    assert_frame_equal(seen.work, read_again.work)


def test_an_annotated_trace_is_known_and_so_is_the_original(tmp_path, monkeypatch):
    target = tmp_path / "annotated.json.gz"
    done = CliRunner().invoke(main, ["analyze", str(SAMPLE), "-o", str(target)])
    assert done.exit_code == 0, done.stderr
    read_again = full_analysis.analyze(SAMPLE, use_cache=False)

    monkeypatch.delattr(readers, "load")
    for path in (target, SAMPLE):
        assert to_json(full_analysis.analyze(path)) == to_json(read_again)
