"""Traces of trainings that were recorded without tracekit (examples/traces/plain), beside their steps timed without a
profiler."""

from pathlib import Path

import pytest

import tracekit
from tracekit.analyzers.predict import baseline

FOLDER = Path(__file__).parents[1] / "examples" / "traces" / "plain"
TIMED_MS = {"dlrm-dense": 6.253, "dlrm-sparse": 4.057, "gnn": 1.520, "encoder": 7.891}
"""Printed in the process that recorded the traces, on an H100."""
COST_COVERAGE = {"dlrm-dense": 0.95, "dlrm-sparse": 0.99, "gnn": 0.8, "encoder": 0.99}
"""The profiler does not record the shapes of indices, with which the graph network gathers its neighbours."""


@pytest.mark.parametrize("name", TIMED_MS)
def test_a_training_of_others_is_recognised_and_counted(name):
    analysis = tracekit.analyze(FOLDER / f"h100_{name}.json.gz")
    assert analysis.source.gpu.id == "h100-sxm"
    assert len(analysis.steps) == 3
    assert {"backward", "forward", "optimizer"} <= set(analysis.phases["name"])
    assert analysis.coverage.cost >= COST_COVERAGE[name]
    assert analysis.kernels["busy_ns"].sum() == analysis.timeline.steps["busy_ns"].sum()


@pytest.mark.parametrize("name", ["dlrm-dense", "dlrm-sparse", "gnn"])
def test_the_time_without_the_profiler_is_near_the_timed_one_where_the_gpu_decides(name):
    path = FOLDER / f"h100_{name}.json.gz"
    base = baseline(tracekit.load(path), tracekit.analyze(path))
    assert base.unprofiled_ns / 1e6 == pytest.approx(TIMED_MS[name], rel=0.12)
    assert base.unprofiled_ns < base.stated_ns
