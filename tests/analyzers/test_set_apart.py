"""Time that does not recur is no part of a step, and device work that the file does not hold is not idle time."""

import pytest
from handmade import Handmade

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import as_recorded
from tracekit.analyzers.attribute.set_apart import UNRECORDED_WORK
from tracekit.analyzers.predict import start
from tracekit.analyzers.results import EARLIER_WORK, NOT_RECORDED, PAUSE, START_UP, Analysis
from tracekit.reports.answer import headline


def run(count: int, period_us: float = 1_000, mark: bool = True, **slow_us: float) -> Handmade:
    """Steps of ten kernels each; `slow_us` holds what the call before the first of them takes, by step ("s0", ...)."""
    made, at = Handmade(), 0.0
    for step in range(count):
        begin, late = at, slow_us.get(f"s{step}", 0.0)
        for number in range(10):
            wait = late if number == 0 else 0.0
            made.host("runtime", "cudaMalloc", at, 1 + wait)
            at += 2 + wait
            made.host("op", "aten::mm", at, 40).launched("k", at + 5, at + 12, 40)
            at += 50
        at = max(at, begin + period_us + late)
        if mark:
            made.host("range", f"ProfilerStep#{step}", begin, at - begin)
    return made


def kinds(analysis: Analysis) -> dict[str, float]:
    """Milliseconds of each kind."""
    return (analysis.set_apart.groupby("kind")["duration_ns"].sum() / 1e6).to_dict()


def test_the_first_call_of_a_kind_is_start_up_and_no_part_of_its_step():
    analysis = analyze(run(4, s0=300_000).trace())
    assert kinds(analysis) == {START_UP: pytest.approx(300, abs=0.1)}
    assert analysis.set_apart["name"].tolist() == ["cudaMalloc"]
    assert analysis.timeline.steps["wall_ns"].max() < 1_100_000
    assert "allocation" not in set(analysis.idle_causes["cause"])


def test_a_call_that_is_long_in_each_step_recurs():
    slow = {f"s{step}": 300_000.0 for step in range(4)}
    analysis = analyze(run(4, **slow).trace())
    assert analysis.set_apart.empty
    assert analysis.idle_causes.set_index("cause").loc["allocation", "idle_ns"] > 1_100_000_000


def test_nothing_is_predicted_from_one_time_time():
    with_it, base = start(run(4, mark=False, s0=300_000).trace())
    assert base is not None and base.stated_ns < 10_000_000
    assert with_it.latency.profiled_us < 10_000


def test_a_single_long_stretch_without_events_is_a_pause():
    made = run(1, mark=False)
    made.launched("late", 400_000, 400_010, 20)
    assert kinds(analyze(made.trace())) == {PAUSE: pytest.approx(399, abs=1)}


def test_stretches_without_events_that_recur_are_no_pause():
    assert analyze(run(5, period_us=400_000).trace()).set_apart.empty


def test_a_queue_that_is_empty_in_the_file_is_work_that_was_not_recorded():
    made = run(3)
    last = max(row["start_ns"] for row in made.host_rows) / 1e3
    made.launched("waits", last + 100, last + 60_000, 50)
    analysis = analyze(made.trace())
    assert kinds(analysis) == {NOT_RECORDED: pytest.approx(59.9, abs=0.1)}
    assert analysis.timeline.busy_ns > 59_000_000
    assert UNRECORDED_WORK in set(analysis.work["name"].astype(str))
    assert "launch" not in set(analysis.gaps.loc[analysis.gaps["duration_ns"] > 1_000_000, "cause"])


def waiting(**launched) -> Handmade:
    """Steps, and a kernel after 60 ms in which no recorded work runs."""
    made = run(3)
    last = max(row["start_ns"] for row in made.host_rows) / 1e3
    return made.launched("waits", last + 100, last + 60_000, 50, **launched)


def test_a_kernel_whose_code_was_just_loaded_starts_up():
    made = waiting()
    launch = max(row["start_ns"] for row in made.host_rows) / 1e3
    made.host("runtime", "cuLibraryLoadData", launch - 20, 10)
    assert kinds(analyze(made.trace())) == {START_UP: pytest.approx(59.9, abs=0.1)}


@pytest.mark.parametrize("other", [{"stream": 9}, {"device": 1}])
def test_work_of_one_stream_may_wait_for_another_rank(other):
    analysis = analyze(waiting(**other).trace())
    assert NOT_RECORDED not in kinds(analysis)


def test_a_launch_long_before_its_work_is_no_wait_for_the_host():
    made, at = Handmade(), 0.0
    for step in range(4):
        at = 100_000.0 * step
        made.host("range", f"ProfilerStep#{step}", at, 99_000)
        made.host("op", "aten::mm", at, 40).launched("k", at + 5, at + 12, 20_000)
        made.host("op", "aten::mm", at + 50, 40).launched("k", at + 55, at + 80_000, 10_000, stream=9)
    analysis = analyze(made.trace())
    assert analysis.idle_causes["cause"].iloc[0] == "queued"
    assert "idle with work queued" in headline(analysis)


def test_earlier_work_is_cut_out_with_several_streams_too():
    made = Handmade().host("op", "aten::mm", 0, 20).launched("k", 5, 80_000, 20_000)
    made.host("op", "aten::mm", 30, 20).launched("k", 35, 100_010, 20_000, stream=9)
    analysis = analyze(made.host("runtime", "cudaStreamSynchronize", 60, 119_950).trace())
    assert kinds(analysis)[EARLIER_WORK] == pytest.approx(80, abs=0.1)


def test_a_wait_before_unrecorded_work_is_not_a_wait_for_it():
    made = run(1, mark=False).host("runtime", "cudaStreamSynchronize", 990, 20)
    made.launched("waits", 1_100, 61_000, 50).host("runtime", "cudaStreamSynchronize", 1_110, 60_000)
    made.host("op", "aten::mm", 61_200, 40).launched("k", 61_205, 61_215, 40)
    _, base = start(made.trace())
    assert base is not None
    ops = base.ops
    unrecorded = (ops.name == UNRECORDED_WORK).nonzero()[0]
    assert len(unrecorded) == 1 and not ops.sync[unrecorded].any()
    assert ops.sync[unrecorded + 1].all()


def test_work_of_an_earlier_step_is_no_part_of_the_first():
    made = Handmade().host("op", "aten::mm", 0, 20).launched("k", 5, 80_000, 20_000)
    analysis = analyze(made.host("runtime", "cudaStreamSynchronize", 30, 99_980).trace())
    assert kinds(analysis) == {EARLIER_WORK: pytest.approx(80, abs=0.1)}
    assert analysis.timeline.steps["wall_ns"].tolist() == [pytest.approx(20_000_000, rel=0.01)]


def test_a_copy_that_waits_for_its_staging_is_no_unrecorded_work():
    made = run(3)
    last = max(row["start_ns"] for row in made.host_rows) / 1e3
    made.launched("Memcpy HtoD (Pageable -> Device)", last + 100, last + 60_000, 50, category="memcpy")
    assert NOT_RECORDED not in kinds(analyze(made.trace()))


def test_findings_are_where_they_were_recorded():
    trace = run(4, s0=300_000).trace()
    analysis = analyze(trace)
    recorded = as_recorded(analysis)
    assert recorded.work["start_ns"].tolist() == trace.device["start_ns"].tolist()
    assert analysis.work["start_ns"].max() < 10_000_000


def test_without_marks_what_is_around_the_work_is_no_part_of_it():
    made = run(1, mark=False)
    made.host("runtime", "cuModuleUnload", 2_000, 90_000)
    (step,) = analyze(made.trace()).timeline.steps.itertuples()
    assert step.wall_ns < 1_000_000
