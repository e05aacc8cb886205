"""A Dask cluster reads the traces of ranks, and one of its workers is killed."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from tracekit.analyzers.core import InputError
from tracekit.jobs import ranks, summaries

FOLDER = Path(__file__).parents[2] / "examples" / "ranks" / "sleep-2"

needs_dask = pytest.mark.skipif(not find_spec("distributed"), reason="needs the extra cluster")


@pytest.mark.slow
@needs_dask
def test_a_killed_worker_changes_nothing(monkeypatch, tmp_path):
    mark, read = tmp_path / "killed", summaries.summary_of

    def killed_once(path: str, *, use_cache: bool) -> bytes:
        try:
            mark.mkdir()
        except FileExistsError:
            return summaries.packed(read(path, use_cache))
        os._exit(9)

    alone = ranks(FOLDER, workers=1, use_cache=False)
    monkeypatch.setattr(summaries, "_summary", killed_once)
    together = ranks(FOLDER, cluster="local:2", use_cache=False)
    assert mark.exists(), "a worker was killed"
    assert together.stragglers == alone.stragglers and alone.stragglers
    assert together.step_ns == alone.step_ns
    assert together.problems["code"].tolist() == alone.problems["code"].tolist()


@pytest.mark.slow
@needs_dask
def test_a_trace_that_kills_every_worker_is_a_problem(monkeypatch):
    import dask

    monkeypatch.setattr(summaries, "_summary", lambda *_, **__: os._exit(9))
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):  # else it starts four workers in turn
        answers = list(summaries.summaries_of_cluster("local:1", [str(FOLDER / "rank-0.json.gz")]))
    assert [each.summary for each in answers] == [None]
    assert "killed" in answers[0].why


@needs_dask
def test_what_is_no_cluster_is_said_so():
    for name in ("local:0", "local:", "local:many"):
        with pytest.raises(InputError, match="is not a cluster"):
            list(summaries.summaries_of_cluster(name, []))
    with pytest.raises(InputError, match="cannot be reached"):
        list(summaries.summaries_of_cluster("nothing://here", []))
