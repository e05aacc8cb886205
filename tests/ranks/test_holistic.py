"""Compares HolisticTraceAnalysis on traces read by tracekit with its own reader, and with our times."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import tracekit
from tracekit.analyzers.core import MissingPackageError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("hta"), reason="needs the extra hta"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def files(shared):
    return {rank: str(shared / "traces" / "ranks" / f"rank-{rank}.json.gz") for rank in (0, 1)}


@pytest.fixture(scope="module")
def filled(files):
    return tracekit.hta(list(files.values()))


@pytest.fixture(scope="module")
def own(files):
    from hta.trace_analysis import TraceAnalysis

    return TraceAnalysis(trace_files=files)


def test_its_breakdown_and_overlap_are_those_of_its_own_reader(filled, own):
    times = [f"{name}_time(us)" for name in ("idle", "compute", "non_compute", "kernel")]
    ours, theirs = (each.get_temporal_breakdown(visualize=False)[["rank", *times]] for each in (filled, own))
    assert len(theirs) == 2
    assert ours.astype(int).to_dict() == theirs.astype(int).to_dict()
    ours, theirs = (each.get_comm_comp_overlap(visualize=False) for each in (filled, own))
    assert ours.to_dict() == theirs.to_dict()


def test_launches_are_linked_to_the_same_work(filled, own):
    ours, theirs = (
        each.get_cuda_kernel_launch_stats(ranks=[0], visualize=False)[0].sort_values("correlation", ignore_index=True)
        for each in (filled, own)
    )
    assert len(theirs) > 100
    assert ours.astype(int).to_dict() == theirs.astype(int).to_dict()


def test_every_event_is_in_its_step(filled, own):
    for rank, theirs in own.t.traces.items():
        ours = filled.t.traces[rank]
        assert ours["iteration"].value_counts().to_dict() == theirs["iteration"].value_counts().to_dict()


def test_its_compute_time_is_ours(files, filled):
    """HolisticTraceAnalysis leaves out the last step."""
    job = tracekit.ranks(list(files.values()))
    theirs = filled.get_temporal_breakdown(visualize=False).set_index("rank")["compute_time(us)"]
    ours = job.by_step.groupby("rank")["compute_ns"].first() / 1e3
    assert ours.to_numpy() == pytest.approx(theirs.to_numpy(), rel=0.01)


def test_a_sample_of_two_gpus_gives_what_its_own_reader_gives():
    """Times of whole steps, of which it rounds the ends of events to microseconds."""
    from hta.trace_analysis import TraceAnalysis

    job = Path(__file__).parents[2] / "examples" / "ranks" / "h200-ddp-slow-loader-2"
    files = {rank: str(job / f"rank-{rank}.json.gz") for rank in (0, 1)}
    both = tracekit.hta(list(files.values())), TraceAnalysis(trace_files=files)
    ours, theirs = (each.get_temporal_breakdown(visualize=False).set_index("rank") for each in both)
    assert set(theirs.index) == {0, 1}
    times = ["idle_time(us)", "compute_time(us)", "non_compute_time(us)", "kernel_time(us)"]
    assert ours[times].to_numpy() == pytest.approx(theirs[times].to_numpy(), abs=2)
    ours, theirs = (each.get_comm_comp_overlap(visualize=False).set_index("rank") for each in both)
    assert ours.to_numpy() == pytest.approx(theirs.to_numpy(), abs=0.01)


def test_a_version_without_types_of_devices(monkeypatch):
    """HolisticTraceAnalysis 0.5.0 has no `infer_gpu_type`."""
    from hta.common import trace_parser

    monkeypatch.delattr(trace_parser, "infer_gpu_type", raising=False)
    job = Path(__file__).parents[2] / "examples" / "ranks" / "h200-ddp-slow-loader-2"
    assert len(tracekit.hta(job).get_temporal_breakdown(visualize=False)) == 2


def test_a_package_that_cannot_be_imported_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "hta.trace_analysis", None)
    with pytest.raises(MissingPackageError, match=r"The hta that is installed cannot be imported: .* pip install"):
        tracekit.hta("traces")
