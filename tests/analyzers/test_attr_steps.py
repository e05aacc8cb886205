"""Steps: marked by the profiler, inferred from repetition, overlapping on the device, and cut off by the recording."""

import pytest
from handmade import Handmade
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tracekit.analyzers import analyze
from tracekit.analyzers.predict import start
from tracekit.analyzers.predict.traced_step import traced_step
from tracekit.analyzers.predict.usual_step import typical_step
from tracekit.analyzers.trace.ranges import module, step

NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
UPDATE = "Optimizer.step#AdamW.step"


def codes(analysis):
    return set(analysis.problems["code"])


def loop(steps, period, host, *, mark):
    """Return steps that the host launches every `host` us, and whose two kernels run for `period` us each."""
    made = Handmade()
    for i in range(steps):
        at = i * host
        made.host("range", mark(i), at, host - 1).host("op", "aten::mm", at + 1, 4)
        begin = 20 + i * period
        made.launched("gemm", at + 2, begin, period / 2).launched("add", at + 3, begin + period / 2, period / 2)
    return made


@pytest.mark.parametrize("mark", [step, "ProfilerStep#{}".format, "step_{}".format], ids=["ours", "profiler", "user"])
def test_steps_that_overlap_last_from_device_start_to_device_start(mark):
    steps = analyze(loop(4, 50, 10, mark=mark).trace()).timeline.steps
    assert steps["host_start_ns"].tolist() == [0, 10_000, 20_000, 30_000]
    assert steps["start_ns"].tolist() == [20_000, 70_000, 120_000, 170_000]
    assert steps["wall_ns"].tolist() == [50_000] * 4
    assert steps["busy_ns"].tolist() == [50_000] * 4


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("train_step", 4),
        ("[pl][profile]run_training_batch", 4),
        ("DeepSpeedEngine.forward", 4),
        ("## forward ##", 4),
        ("attention", 1),
        ("optimizer_step", 1),
    ],
)
def test_ranges_of_iterations_that_do_not_count_them_are_steps(name, count):
    steps = analyze(loop(4, 50, 10, mark=lambda _: name).trace()).timeline.steps
    assert steps["host_start_ns"].tolist() == ([0, 10_000, 20_000, 30_000] if count > 1 else [2_000])


def test_steps_that_wait_for_the_device_last_from_host_start_to_device_end():
    steps = analyze(loop(3, 30, 60, mark=step).trace()).timeline.steps
    assert steps["start_ns"].tolist() == steps["host_start_ns"].tolist() == [0, 60_000, 120_000]
    assert steps["wall_ns"].tolist() == [59_000, 59_000, 59_000]


def test_without_marks_the_span_is_that_of_the_work_from_its_first_launch():
    made = Handmade().host("python", "features.py(20): spectrogram", 0, 200).host("op", "aten::mm", 210, 9)
    (step,) = analyze(made.launched("k", 212, 220, 30).trace()).timeline.steps.itertuples()
    assert (step.host_start_ns, step.wall_ns) == (212_000, 38_000)


def test_of_two_steps_that_overlap_the_steady_one_is_typical():
    made = Handmade()
    for i, begin in enumerate((20, 120)):
        made.host("range", step(i), 10 * i, 9).launched("k", 10 * i + 2, begin, 60)
    analysis, base = start(made.trace())
    assert analysis.timeline.steps["wall_ns"].tolist() == [100_000, 60_000]
    assert typical_step(analysis)["wall_ns"] == base.stated_ns == 60_000


def test_the_end_of_the_recording_is_no_wait_of_steps_that_overlap():
    made = loop(3, 100, 10, mark=step).host("runtime", "cudaDeviceSynchronize", 28, 300)
    _, base = start(made.trace())
    assert base.overlaps
    assert not base.tail.waits
    assert base.latency_ns == pytest.approx(100_000, rel=0.02)


@given(st.integers(2, 6), st.integers(20, 80).map(lambda half: 2 * half), st.integers(8, 20))
def test_the_baseline_of_overlapping_steps_is_their_period(steps, period, host):
    analysis, base = start(loop(steps, period, host, mark=step).trace())
    assert analysis.latency.profiled_us == period
    assert base is not None
    assert base.overlaps
    assert base.stated_ns == period * 1000


def test_ranks_in_one_recording_have_their_own_hosts():
    def ranks(count):
        made = Handmade()
        for at in range(0, 300, 100):
            made.host("range", step(at // 100), at, 99)
            for rank in range(count):
                made.host("op", "aten::mm", at + 1, 40, thread=rank)
                call = {"correlation": 10 * at + rank, "category": "runtime", "name": "cudaLaunchKernel"}
                made.host(start_us=at + 5 + rank, duration_us=1, thread=rank, **call)
                made.device("gemm", at + 20 + rank, 30, device=rank, correlation=10 * at + rank)
        trace = made.trace()
        return traced_step(trace, analyze(trace)).recorded

    assert ranks(1)["op"] == ranks(2)["op"] == 1


def test_an_empty_last_step_is_set_apart():
    made = loop(3, 30, 60, mark=step).host("range", step(3), 180, 5)
    analysis = analyze(made.trace())
    assert analysis.timeline.steps["wall_ns"].tolist() == [59_000] * 3
    assert "steps-set-apart" in codes(analysis)


def test_a_cut_first_step_is_set_apart_and_its_work_is_counted():
    made = Handmade()
    for i in range(3):
        made.host("range", f"ProfilerStep#{i}", 100 * i, 90)
        for k in range(1 if i == 0 else 4):
            made.launched("k", 100 * i + 5 * k, 100 * i + 10 * k + 6, 5)
    analysis = analyze(made.trace())
    assert analysis.timeline.steps["kernels"].tolist() == [4, 4]
    assert analysis.work["step"].tolist() == [-1] + [0] * 4 + [1] * 4
    assert analysis.kernels["calls"].tolist() == [8]
    assert analysis.problems.set_index("code")["count"][["steps-set-apart", "work-outside-steps"]].tolist() == [1, 1]


def test_tables_hold_the_work_of_the_steps():
    made = Handmade().host("op", "aten::copy_", 0, 40)
    made.launched("Memcpy HtoD", 5, 10, 80, call="cudaMemcpyAsync", category="memcpy", bytes=100)
    for i in range(1, 3):
        made.host("range", step(i), 100 * i, 90).host("op", "aten::neg", 100 * i + 1, 8)
        made.launched("neg", 100 * i + 2, 100 * i + 10, 20)
    made.host("op", "aten::neg", 300, 5)
    analysis = analyze(made.trace())
    assert analysis.kernels[["name", "calls", "share"]].to_numpy().tolist() == [["neg", 2, 1.0]]
    assert analysis.ops[["name", "calls", "cpu_ns"]].to_numpy().tolist() == [["aten::neg", 2, 16_000]]
    assert analysis.layers["busy_ns"].tolist() == [40_000]
    assert analysis.work["name"].tolist() == ["Memcpy HtoD", "neg", "neg"]
    outside = analysis.problems.set_index("code").loc["work-outside-steps"]
    assert (outside["count"], "66.7%" in outside["message"]) == (1, True)


def test_a_batch_of_a_loader_is_a_step_and_what_follows_the_last_update_is_none():
    made = Handmade().host("op", "aten::randn", 0, 5)
    for i in range(3):
        at = 100 * (i + 1)
        made.host("range", NEXT, at, 40).host("range", "forward", at + 41, 9).launched("k", at + 42, at + 50, 5)
        made.launched("adam", at + 61, at + 70, 5).host("range", UPDATE, at + 60, 10)
    made.host("range", NEXT, 400, 60)
    steps = analyze(made.trace()).timeline.steps
    assert steps["start_ns"].tolist() == [100_000, 200_000, 300_000]
    assert steps["wall_ns"].tolist() == [100_000] * 3
    assert steps["kernels"].tolist() == [2, 2, 2]


def test_several_batches_of_one_update_are_one_step():
    made = Handmade()
    for i in range(6):
        made.host("range", NEXT, 50 * i, 5).launched("k", 50 * i + 10, 50 * i + 15, 5)
        if i % 3 == 2:
            made.host("range", UPDATE, 50 * i + 20, 10).launched("adam", 50 * i + 21, 50 * i + 30, 5)
    steps = analyze(made.trace()).timeline.steps
    assert steps["start_ns"].tolist() == [0, 150_000]
    assert steps["kernels"].tolist() == [4, 4]


@pytest.mark.parametrize("around", ["", "ProfilerStep#6"])
def test_calls_of_the_model_are_steps(around):
    made = Handmade()
    if around:
        made.host("range", around, 0, 600)
    for i in range(5):
        at = 10 + 100 * i
        made.host("module", "nn.Module: Net_0", at, 60).host("module", "nn.Module: Linear_0", at + 1, 20)
        made.launched("k", at + 2, at + 10, 5).launched("k", at + 30, at + 40, 5)
    analysis = analyze(made.trace())
    assert analysis.timeline.steps["start_ns"].tolist() == [10_000, 110_000, 210_000, 310_000, 410_000]
    last = 100_000 if around else 60_000
    assert analysis.timeline.steps["wall_ns"].tolist() == [100_000] * 4 + [last]
    assert analysis.timeline.steps["kernels"].tolist() == [2] * 5


def test_a_call_that_a_graph_records_is_no_step():
    made = Handmade()
    for at in (0, 1000, 2000):
        for call in (at, at + 200):
            made.host("module", "nn.Module: Net_0", call, 90)
            made.host("op", "aten::mm", call + 1, 8)
        made.host("runtime", "cudaStreamBeginCapture", at + 190, 2).host("runtime", "cudaStreamEndCapture", at + 300, 2)
        made.launched("k", at + 2, at + 10, 5).launched("k", at + 310, at + 320, 5)
    assert analyze(made.trace()).timeline.steps["host_start_ns"].tolist() == [0, 1_000_000, 2_000_000]


def test_the_first_and_the_last_iteration_may_differ():
    made = Handmade()
    for i in range(4):
        at = 1000 * i
        for k in range(4):
            made.launched("rays", at + 10 * k, at + 10 * k + 5, 5)
        made.host("module", "nn.Module: Net_0", at + 100, 300)
        for k in range(6 if i else 12):
            made.launched("k", at + 110 + 10 * k, at + 115 + 10 * k, 5)
        made.host("range", UPDATE, at + 500, 100).launched("adam", at + 510, at + 520, 5)
    assert analyze(made.trace()).timeline.steps["kernels"].tolist() == [17, 11, 11, 7]


def test_calls_of_unlike_work_are_no_steps():
    made = Handmade()
    for i, kernels in enumerate((40, 4, 12, 1)):
        made.host("module", "nn.Module: Net_0", 1000 * i, 900)
        for k in range(kernels):
            made.launched("k", 1000 * i + 5 * k, 1000 * i + 5 * k + 2, 1)
    assert len(analyze(made.trace()).timeline.steps) == 1


def test_one_step_of_ours_holds_several_calls():
    made = Handmade().host("range", step(0), 0, 500)
    for i in range(3):
        made.host("range", module("", "Net"), 100 * i, 60).launched("k", 100 * i + 1, 100 * i + 5, 5)
    assert len(analyze(made.trace()).timeline.steps) == 1


def periodic(copies):
    """A GPU-only trace: four times the kernels a, b, b, c, and a copy to the host where `copies`."""
    made = Handmade()
    names = ["a", "b", "b", "c", *(["Memcpy DtoH (Device -> Pinned)"] if copies else [])]
    for i in range(4):
        for k, name in enumerate(names):
            category = "memcpy" if name.startswith("Memcpy") else "kernel"
            made.device(name, 100 * i + 10 * k, 8, category=category)
    return made


def test_a_period_of_kernels_with_a_copy_to_the_host_is_a_step():
    steps = analyze(periodic(copies=True).trace()).timeline.steps
    assert steps["start_ns"].tolist() == [0, 100_000, 200_000, 300_000]
    assert steps["kernels"].tolist() == [5] * 4


def test_a_period_of_kernels_alone_may_be_that_of_layers():
    assert len(analyze(periodic(copies=False).trace()).timeline.steps) == 1


LAYER = ["norm", "gemm", "add"]


def passes(kernels, *, first, last, count=3, copy_us=0):
    """Return passes of these kernels, whose first and last ops read inputs of these shapes, and each of which begins
    with a copy to the device if that takes time."""
    made, at = Handmade(), 0
    for i in range(count):
        names = ["Memcpy HtoD (Pageable -> Device)"] * bool(copy_us) + kernels
        for k, name in enumerate(names):
            place, shapes = 1000 * i + 50 * k, [first, *["[[8,9]]"] * (len(names) - 2), last][k]
            made.host("op", "aten::op", place, 20, shapes=shapes, external_id=place)
            made.launched(name, place + 1, at + place + 5, copy_us if k == 0 and copy_us else 5)
    return made


@pytest.mark.parametrize(
    ("kernels", "last", "steps"),
    [
        (["lookup", *LAYER * 4, "head"], "[[8,50000]]", 3),
        (["lookup", *LAYER * 4, "head"], "[[8,16]]", 1),
        (["lookup", "gemm", "add", "head"], "[[8,50000]]", 1),
    ],
    ids=["layers repeat within", "a layer reads what a layer wrote", "nothing repeats within"],
)
def test_equal_passes_are_steps_where_they_cannot_be_layers(kernels, last, steps):
    made = passes(kernels, first="[[8,16],[16]]", last=last)
    assert len(analyze(made.trace()).timeline.steps) == steps


def test_a_pass_alone_is_one_step():
    made = passes(["lookup", *LAYER * 4, "head"], first="[[8,16]]", last="[[8,50000]]", count=1)
    assert len(analyze(made.trace()).timeline.steps) == 1


@pytest.mark.parametrize(("copy_us", "copies", "steps"), [(2, 1, 3), (40, 1, 1), (40, 12, 1)])
def test_a_layer_whose_weights_are_copied_is_no_step(copy_us, copies, steps):
    kernels = [*["Memcpy HtoD (Pageable -> Device)"] * (copies - 1), "norm", "gemm", "gelu"]
    made = passes(kernels, first="[[8,16]]", last="[[8,16]]", copy_us=copy_us)
    assert len(analyze(made.trace()).timeline.steps) == steps


@pytest.mark.parametrize(("kernels", "latency_us"), [(6, 100), (9, 90)])
def test_the_latency_leaves_out_a_last_step_with_less_work(kernels, latency_us):
    made = Handmade()
    for i, count in enumerate([10, 10, 10, kernels][2:]):
        made.host("range", f"ProfilerStep#{i}", 100 * i, 100 if i == 0 else 80)
        for k in range(count):
            made.launched("gemm", 100 * i + 2 * k, 100 * i + 8 * k + 3, 5)
    assert analyze(made.trace()).latency.profiled_us == pytest.approx(latency_us)


def test_the_latency_leaves_out_a_last_step_that_the_recording_cut_off():
    made = passes(["norm", "gemm", "gelu"], first="[[8,16]]", last="[[8,16]]", count=2, copy_us=2)
    analysis = analyze(made.trace())
    whole, cut_off = analysis.timeline.steps["wall_ns"]
    assert cut_off < whole / 2
    assert analysis.latency.profiled_us == whole / 1e3
    assert typical_step(analysis).wall_ns == whole


def two(apart, after=0):
    """Return two steps of ten launches, this far APART in each, and work of the host AFTER those of the first."""
    made, at = Handmade(), 0
    for i, each in enumerate(apart):
        lasts = 10 * each + (1 - i) * after
        made.host("range", step(i), at, lasts)
        for k in range(10):
            made.host("op", "aten::mm", at + k * each, each - 1)
            made.launched("k", at + k * each + each // 2, at + (k + 1) * each - 6, 5)
        if after and not i:
            made.host("python", "script.py(7): evaluate", at + 10 * each, after)
        at += lasts
    return start(made.trace())


@pytest.mark.parametrize(
    ("apart", "after", "chosen"), [((80, 40), 0, 1), ((42, 40), 0, 0), ((40, 80), 0, 0), ((40, 40), 300, 0)]
)
def test_of_two_steps_the_second_counts_if_launches_of_the_first_are_slow(apart, after, chosen):
    """Work of the host that only the first step contains is no sign of that: the recording ends before the second's."""
    analysis, base = two(apart, after)
    assert typical_step(analysis)["step"] == chosen
    if chosen:
        assert base.outside.total() == base.rest_ns == 0
        assert base.as_traced.stated_us == pytest.approx(10 * apart[1], rel=0.05)


def forwards(count, streams=(7,)):
    """Forward passes that look tokens up, then run kernels that differ from pass to pass; each launch is an op's."""
    made = Handmade()
    for i in range(count):
        at = 100 * i
        made.host("op", "aten::embedding", at, 5, shapes="[[1000,16],[1,1]]", external_id=at)
        made.host("op", "aten::embedding", at + 10, 5, shapes="[[64,16],[1,1]]", external_id=at + 10)
        for k in (0, 10, 20, 30):
            name = "table" if k < 20 else f"k{i}_{k}"
            made.launched(name, at + k + 1, at + k + 20, 5, stream=streams[i % len(streams)])
    return made


def test_lookups_of_tokens_begin_the_steps():
    made = forwards(3)
    steps = analyze(made.trace()).timeline.steps
    assert steps["start_ns"].tolist() == [0, 100_000, 200_000]
    assert steps["kernels"].tolist() == [4, 4, 4]


def test_models_that_run_side_by_side_share_a_step():
    made = forwards(4, streams=(7, 8))
    assert analyze(made.trace()).timeline.steps["kernels"].tolist() == [8, 8]


def test_a_pass_over_an_image_and_its_caption_begins_with_the_image():
    made = Handmade()
    for i in range(3):
        at = 100 * i
        made.host("op", "aten::conv2d", at, 5, shapes="[[2,3,32,32],[16,3,4,4]]", external_id=at)
        made.host("op", "aten::convolution", at + 1, 4, shapes="[[2,3,32,32],[16,3,4,4]]", external_id=at + 1)
        made.launched(f"image{i}", at + 2, at + 20, 5, stream=7)
        made.host("op", "aten::embedding", at + 50, 5, shapes="[[1000,16],[2,8]]", external_id=at + 50)
        made.launched(f"text{i}", at + 51, at + 60, 5, stream=8)
    assert analyze(made.trace()).timeline.steps["kernels"].tolist() == [2, 2, 2]


def test_one_lookup_tells_nothing():
    made = forwards(1)
    assert len(analyze(made.trace()).timeline.steps) == 1


def test_work_launched_before_the_recording_belongs_to_no_step():
    """The device runs 100 us behind the host; its first kernels have no launch in the trace."""
    made = Handmade()
    for i in range(3):
        at = 60 * i
        made.host("range", f"ProfilerStep#{i}", at, 59).launched("k", at + 1, at + 101, 50)
    made.device("k", 0, 40).device("k", 50, 45)
    work = analyze(made.trace()).work
    assert work["step"].tolist() == [-1, -1, 0, 1, 2]


@pytest.mark.parametrize(("begins_at", "wall"), [(101, 50), (140, 189)], ids=["queued", "launched late"])
def test_a_single_step_behind_work_of_the_one_before_lasts_as_long_as_its_own(begins_at, wall):
    made = Handmade().host("range", "ProfilerStep#1", 1, 30).launched("k", 2, begins_at, 50)
    made.device("k", 0, 100)
    (step,) = analyze(made.trace()).timeline.steps.itertuples()
    assert step.wall_ns == wall * 1000


@pytest.mark.parametrize(
    ("name", "walls_ms", "tolerance"),
    [
        ("h100_owlv2", [242] * 5, 0.03),
        ("h100_resnet-dataloader", [655, 895, 710, 690], 0.01),
        ("mi300_resnet-train", [19.0] * 3, 0.03),
    ],
)
def test_steps_of_traces_of_others(shared, name, walls_ms, tolerance):
    steps = tracekit.analyze(shared / "advice" / f"{name}.json.gz").timeline.steps
    assert (steps["wall_ns"] / 1e6).tolist() == pytest.approx(walls_ms, rel=tolerance)


def test_a_step_whose_work_lasts_beyond_the_next_is_busy_within_its_period():
    made = Handmade()
    for number in range(2):
        made.host("range", f"ProfilerStep#{number}", 100 * number, 90)
        for i in range(4):
            at = 100 * number + 10 * i
            made.host("runtime", "cudaLaunchKernel", at, 2, correlation=10 * number + i + 1)
            made.device("k", at + 5, 300, correlation=10 * number + i + 1)
    steps = analyze(made.trace()).timeline.steps
    assert (steps["wall_ns"] > 0).all()
    assert (steps["busy_ns"] == steps["wall_ns"]).all()
