"""Host work outside the model: no optimization of the model removes it, and advice says what removing it would give."""

import numpy as np
import op_lists
import pandas as pd
import pytest
from msgspec.structs import replace

import tracekit
from tracekit.advise import OPTIMIZATIONS, find
from tracekit.advise.optimizations.compile import entering_ns
from tracekit.analyzers.attribute import Loader
from tracekit.analyzers.core import Interval, TracekitError
from tracekit.analyzers.predict import Outside, changed, start
from tracekit.analyzers.predict.running import GraphUse
from tracekit.analyzers.predict.traced_step import HostTail
from tracekit.analyzers.results import HOST_CAUSES
from tracekit.analyzers.trace import load

LOADED_NS = 50e6


def with_work(cause: str, name: str = "work", **capture):
    """Return a run with 50 ms of host work at its start."""
    base = op_lists.base(**capture)
    outside = Outside(np.array([cause], dtype=object), np.array([LOADED_NS]), np.array([0.0]))
    causes = HOST_CAUSES.frame(
        {"step": [0], "cause": [cause], "name": [name], "location": ["a.py:1"], "caller": [""], "gaps": [1]}
        | {"idle_ns": [round(LOADED_NS)]}
    )
    base = replace(base, outside=outside, host_causes=causes)
    return replace(base, stated_ns=base.latency_ns)


def after(name: str, base, outcome: str = "expected") -> float:
    return find(name).applied(base, outcome).latency_ns


@pytest.mark.parametrize("name", ["compile", "cuda-graphs", "half-precision:fp16", "int8-weight-only"])
def test_no_optimization_of_the_model_removes_it(name: str):
    base = with_work("preprocessing", precision="fp32" if name.startswith("half") else "bf16")
    assert after(name, base, "best") > LOADED_NS
    assert after(name, base, "best") - after(name, replace(base, outside=Outside()), "best") == pytest.approx(LOADED_NS)


@pytest.mark.parametrize(
    ("name", "cause"), [("data-loading", "data-loading"), ("preprocessing", "python"), ("recompiling", "compilation")]
)
def test_at_the_high_end_it_is_gone_or_shared_by_sixteen_workers(name: str, cause: str):
    base = with_work(cause)
    assert find(name).objection(base) is None
    loading = LOADED_NS / 16 if name == "data-loading" else 0.0
    assert after(name, base, "best") == pytest.approx(max(replace(base, outside=Outside()).latency_ns, loading))
    assert after(name, base, "best") <= after(name, base) <= after(name, base, "worst") < base.latency_ns
    assert find(name).objection(with_work("setup"))


def test_time_without_a_record_is_preprocessing_where_it_is_a_large_part_of_the_step():
    base = with_work("unexplained", "")
    rest = replace(base, outside=Outside()).latency_ns
    assert [after("preprocessing", base, outcome) for outcome in ("worst", "best")] == pytest.approx(
        [base.latency_ns, rest]
    )
    assert [each.kind for each in find("preprocessing").reason(base)] == ["preprocessing", "host-work-unnamed"]
    assert "with_stack" in find("preprocessing").how_to(base)
    nsys = replace(base, source=replace(base.source, format="nsys"))
    assert find("preprocessing").reason(nsys)[1].kind == "host-work-unsampled"
    assert find("preprocessing").how_to(nsys).startswith("nsys profile")
    short = replace(base, outside=base.outside.scaled(0.2 * rest / LOADED_NS))
    assert find("preprocessing").objection(replace(short, stated_ns=short.latency_ns))


def test_idle_time_without_a_cause_is_no_preprocessing():
    base = with_work("unexplained", "")
    unrecorded = replace(base, host_causes=base.host_causes.assign(cause="unknown"))
    assert find("preprocessing").objection(base) is None
    assert find("preprocessing").objection(unrecorded) == find("preprocessing").nothing


def test_four_workers_share_what_the_step_does_not_cover():
    base = with_work("data-loading")
    rest = replace(base, outside=Outside()).latency_ns
    left = after("data-loading", base, "worst") - rest
    assert left == pytest.approx(LOADED_NS / 4 - rest)


def test_a_loader_with_workers_is_told_from_one_without():
    alone = with_work("data-loading")
    alone = replace(alone, loader=Loader(in_process=True))
    waiting = replace(alone, loader=Loader(workers=True))
    advice = find("data-loading")
    assert "num_workers=8" in advice.how_to(alone)
    assert "2 * num_workers" in advice.how_to(waiting) and "only what an item needs" in advice.how_to(waiting)
    assert advice.notes(alone)
    assert not advice.notes(waiting)
    assert after("data-loading", waiting, "worst") > after("data-loading", alone, "worst")
    rest = replace(waiting, outside=Outside()).latency_ns
    assert after("data-loading", waiting) == pytest.approx(max(LOADED_NS / 8, rest))


def test_the_evidence_names_the_function():
    (said,) = find("preprocessing").evidence(with_work("preprocessing", "scipy.ndimage.zoom"))
    assert {each.role: each.value for each in said.evidence}["name"] == "scipy.ndimage.zoom"
    assert "interpolate" in find("preprocessing").how_to(with_work("preprocessing", "scipy.ndimage.zoom"))


@pytest.mark.parametrize(
    ("name", "code"), [("aten::normal_", 'randn(shape, device="cuda")'), ("aten::triu", "tril()  # on the GPU, once")]
)
def test_what_the_host_draws_or_masks_is_made_on_the_gpu(name: str, code: str):
    assert code in find("preprocessing").how_to(with_work("preprocessing", name))
    assert code not in find("preprocessing").how_to(with_work("preprocessing", "work"))


def test_the_reason_names_the_function_that_takes_most_of_the_time():
    base = with_work("preprocessing", "scipy.ndimage.zoom")
    assert [each.kind for each in find("preprocessing").reason(base)] == ["preprocessing", "most-of-it"]
    nameless = replace(base, host_causes=base.host_causes.assign(name=""))
    assert [each.kind for each in find("preprocessing").reason(nameless)] == ["preprocessing"]


def test_the_time_that_a_reason_quotes_is_of_the_step_that_is_quoted():
    base = with_work("data-loading")
    shorter = replace(base, stated_ns=base.stated_ns / 2, profiler_share=Interval(0.0, 0.0, 0.0))
    (spent, *_) = find("data-loading").reason(shorter)
    time, share = (each.value for each in spent.evidence)
    assert time < shorter.unprofiled_ns
    assert share == pytest.approx(time / shorter.unprofiled_ns)


def test_shapes_that_depend_on_values_keep_graphs_away_until_they_are_fixed():
    base = op_lists.base(layers=4)
    names = base.ops.name.copy()
    names[3] = "aten::nonzero"
    waiting = replace(base, ops=base.ops.assign(name=names, sync=np.arange(len(names)) == 3))
    for name in ("cuda-graphs", "max-autotune"):
        assert find(name).objection(base) is None
        assert "shapes depend on values" in str(find(name).objection(waiting))
        assert find(name).objection(find("avoid-syncs").applied(waiting, "expected")) is None
    assert "topk" in find("avoid-syncs").how_to(waiting)


def test_work_scales_with_the_batch():
    base = with_work("preprocessing", batch_size=1)
    assert after("batching:8", base) > 8 * LOADED_NS


def test_what_nothing_explains_scales_with_the_batch_at_worst():
    """As expected, it scales if it takes most of the step."""
    base = with_work("unexplained", batch_size=1)
    share = LOADED_NS / base.latency_ns
    times = {outcome: after("batching:8", base, outcome) for outcome in ("worst", "expected", "best")}
    without = {outcome: after("batching:8", replace(base, outside=Outside()), outcome) for outcome in times}
    grown = {outcome: (times[outcome] - without[outcome]) / LOADED_NS for outcome in times}
    assert grown == pytest.approx({"worst": 8.0, "expected": 8**share, "best": 1.0})


def test_the_host_time_of_an_optimizer_does_not_scale_with_the_batch():
    base = op_lists.base(batch_size=1)
    pause = changed(base.ops.host_ns, base.ops.index == 2, LOADED_NS)
    base = replace(base, ops=base.ops.assign(host_ns=pause))
    trained = replace(base, ops=base.ops.assign(phase=changed(base.ops.phase, base.ops.index == 2, "optimizer")))
    more = [find("batching:8").transform(run, "worst").host_ns.sum() / LOADED_NS for run in (base, trained)]
    assert more == pytest.approx([8.0, 1.0], rel=0.1)


def test_a_step_without_waits_in_it_is_faster():
    base = op_lists.base(width=4096, host_us=2.0)
    waiting = replace(base, ops=base.ops.assign(sync=True))
    assert find("avoid-syncs").objection(waiting) is None
    assert after("avoid-syncs", waiting) < waiting.latency_ns
    assert find("avoid-syncs").objection(replace(base, ops=base.ops.assign(sync=False)))


def test_what_only_computes_whether_to_branch_goes_with_the_branch():
    base = op_lists.base()
    row, one = np.arange(len(base.ops)), op_lists.elementwise(4096, "fp16", "reduction")
    costs = base.ops.cost.copy()
    costs[[3, 4]] = replace(one, write_bytes=1)
    ops = base.ops.assign(cost=costs, sync=row == 5, call=np.where(row == 5, "aten::is_nonzero", base.ops.call))
    copies = np.where(row == 5, "Memcpy DtoH (Device -> Pageable)", "").astype(object)
    asked = replace(base, ops=ops, recorded=replace(base.recorded, copies=copies))
    read = replace(asked, ops=ops.assign(call="aten::item"))
    gone = [
        np.flatnonzero(find("avoid-syncs").applied(each, outcome).ops.kernel_ns == 0).tolist()
        for each, outcome in ((asked, "expected"), (asked, "worst"), (read, "expected"))
    ]
    assert gone == [[3, 4, 5], [5], [5]]
    names = np.where(row == 4, "aten::any", np.where(row == 3, "aten::mm", ops.name))
    unsized = replace(asked, ops=ops.assign(cost=None, name=names))
    assert np.flatnonzero(find("avoid-syncs").applied(unsized, "expected").ops.kernel_ns == 0).tolist() == [4, 5]


def test_what_finds_the_rows_of_a_mask_goes_with_the_mask():
    base = op_lists.base()
    row = np.arange(len(base.ops))
    ops = base.ops.assign(sync=row == 4, name=np.where((row == 5) | (row == 7), "aten::nonzero", base.ops.name))
    masked = replace(base, ops=ops.assign(call=np.where(row == 5, "aten::index_put_", base.ops.call)))
    gone = [
        np.flatnonzero(find("avoid-syncs").applied(masked, outcome).ops.host_ns == 0).tolist()
        for outcome in ("worst", "expected")
    ]
    assert gone == [[], [5]]


def test_a_wait_for_the_device_within_a_step_keeps_graphs_away_and_breaks_them():
    base = op_lists.base()
    row = np.arange(len(base.ops))
    stopped = replace(base, ops=base.ops.assign(sync=row == len(row) // 2))
    last = replace(base, ops=base.ops.assign(sync=row == len(row) - 1))
    assert "waits for the device" in find("cuda-graphs").objection(stopped)
    assert find("cuda-graphs").objection(last) is None
    assert find("cuda-graphs").objection(find("avoid-syncs").applied(stopped, "expected")) is None
    assert entering_ns(stopped, "expected") > entering_ns(last, "expected")


def test_a_run_that_asks_for_graphs_and_launches_none():
    base = replace(op_lists.base(layers=24), graph_use=GraphUse(requested=3))
    assert find("graph-not-replaying").objection(base) is None
    assert "graph-not-replaying" in (find("cuda-graphs").objection(base) or "")
    assert find("graph-not-replaying").objection(replace(base, graph_use=GraphUse(3, replayed=1)))
    assert find("graph-not-replaying").objection(op_lists.base())


def test_a_graph_that_is_recorded_for_one_replay_is_not_replayed():
    assert GraphUse(recorded=1, replayed=1).falls_back
    assert not GraphUse(recorded=1, replayed=2).falls_back
    assert not GraphUse(replayed=1).falls_back
    pause = changed(op_lists.base().ops.host_ns, op_lists.base().ops.index == 2, LOADED_NS)
    base = replace(op_lists.base(), ops=op_lists.base().ops.assign(host_ns=pause))
    recording, asking = (replace(base, graph_use=use) for use in (GraphUse(recorded=1, replayed=1), GraphUse(1)))
    at_worst, expected = (after("graph-not-replaying", recording, outcome) for outcome in ("worst", "expected"))
    assert after("graph-not-replaying", asking) > 0.9 * LOADED_NS
    assert 0.4 * LOADED_NS > at_worst > 0.2 * LOADED_NS > expected


def test_copies_of_tensors_are_no_waits_to_avoid_and_pinned_ones_of_unknown_size_are_faster():
    base = op_lists.base()
    copy = base.ops.index == 3
    names = np.where(copy, "Memcpy DtoH (Device -> Pageable)", "").astype(object)
    costs = np.where(copy, None, base.ops.cost)

    def copying(ns: float):
        category = np.where(copy, "memcpy", "kernel")
        kernel_ns = np.where(copy, ns, base.ops.kernel_ns)
        ops = base.ops.assign(kernel_ns=kernel_ns, category=category, cost=costs, sync=copy)
        return replace(base, ops=ops, recorded=replace(base.recorded, copies=names))

    assert find("avoid-syncs").objection(copying(5e3)) is None
    assert find("avoid-syncs").objection(copying(20e6))
    pinned = [find("pinned-copies").applied(copying(20e6), each).ops.kernel_ns[3] for each in ("worst", "expected")]
    assert pinned == pytest.approx([0.64 * 20e6, 0.16 * 20e6])


def test_pageable_copies_become_pinned_ones():
    base = op_lists.base()
    copy = base.ops.index == 3
    ops = base.ops.assign(
        kernel_ns=np.where(copy, 20e6, base.ops.kernel_ns), category=np.where(copy, "memcpy", "kernel")
    )
    names = np.where(copy, "Memcpy HtoD (Pageable -> Device)", "").astype(object)
    base = replace(base, ops=ops, recorded=replace(base.recorded, copies=names))
    assert find("pinned-copies").objection(base) is None
    assert after("pinned-copies", base) < base.latency_ns
    assert find("offload-overlap").objection(base)
    prefetched = replace(base.recorded, copies=np.where(copy, "Memcpy HtoD (Pinned -> Device)", names).astype(object))
    pinned = replace(base, recorded=prefetched)
    assert find("pinned-copies").objection(pinned)
    assert find("offload-overlap").objection(pinned) is None
    assert "coming" in find("offload-overlap").how_to(pinned)
    rest = pinned.busy_ns - 20e6
    assert after("offload-overlap", pinned) == pytest.approx(pinned.latency_ns - 0.9 * rest, rel=0.05)
    assert find("offload-overlap").objection(replace(pinned, side_by_side=0.7))


def advised(shared, name: str):
    return tracekit.analyze(shared / "advice" / f"{name}.json.gz")


def test_a_detector_is_told_to_preprocess_elsewhere(shared):
    _, base = start(load(shared / "advice" / "h100_owlv2.json.gz"))
    assert base.as_traced.holds
    assert advised(shared, "h100_owlv2").recommendations[0].id in ("preprocessing", "data-loading")
    assert after("compile", base, "best") > base.outside.total()


def test_a_loader_without_workers_is_told_to_take_some(shared):
    analysis = advised(shared, "h100_resnet-dataloader")
    assert analysis.predicted_from.as_traced.passed
    assert analysis.recommendations[0].id == "data-loading"


def test_exposed_collectives_come_first(shared):
    analysis = advised(shared, "mi300_resnet-train")
    assert analysis.predicted_from.as_traced.passed
    assert analysis.recommendations[0].id == "overlap-communication"


def test_a_graph_that_falls_back_is_told_why(shared):
    analysis = advised(shared, "mistral-7b_bf16-sdpa-graphs_decode_b1_c512")
    assert analysis.recommendations[0].id == "graph-not-replaying"
    assert "cuda-graphs" not in [each.id for each in analysis.recommendations]


NEW = ("data-loading", "preprocessing", "recompiling", "avoid-syncs", "pinned-copies", "offload-overlap")


@pytest.mark.parametrize("name", ["h200_llama-1b_bf16_decode", "h200_gpt2_fp32-eager_prefill", "mi300_bert-small"])
def test_healthy_runs_get_none_of_it(shared, name: str):
    advice = {each.id for each in tracekit.analyze(shared / "traces" / f"{name}.json.gz").recommendations}
    assert not advice & {*NEW, "overlap-communication", "graph-not-replaying"}


def test_verify_says_how_a_mend_of_a_script_is_measured():
    for optimization in OPTIMIZATIONS:
        if optimization.fixes_mistake:
            with pytest.raises(TracekitError, match="tracekit compare BEFORE AFTER"):
                optimization.apply(None)


def test_what_the_simulated_step_is_short_of_the_mean_goes_with_the_host_work_that_it_is_mostly_of():
    base = replace(with_work("preprocessing"), rest_ns=30e6)
    left = {each: find("preprocessing").applied(base, each).rest_ns for each in ("worst", "expected", "best")}
    assert left["worst"] == 30e6 and left["best"] < left["expected"] < 3e6


@pytest.mark.parametrize(("name", "goes"), [("aten::arange", True), ("aten::index", False), ("load_images", False)])
def test_what_the_host_makes_of_constants_is_not_copied_once_the_gpu_makes_it(name: str, goes: bool):
    base = copying_to_gpu(with_work("preprocessing", name))
    unnamed = replace(base, host_causes=pd.concat([base.host_causes, base.host_causes.assign(name="")]))
    for run in (base, unnamed):
        assert (find("preprocessing").transform(run, "expected").kernel_ns[0] == 0) == goes
        assert find("preprocessing").transform(run, "worst").kernel_ns[0] == 5e6


@pytest.mark.parametrize(("part", "goes"), [(0.005, True), (0.05, False)])
def test_a_function_that_takes_hardly_any_time_makes_nothing_that_is_copied(part: float, goes: bool):
    base = copying_to_gpu(with_work("preprocessing", "aten::randn"))
    beside = base.host_causes.assign(name="slow.step", idle_ns=round(part * LOADED_NS))
    base = replace(base, host_causes=pd.concat([base.host_causes, beside]))
    assert (find("preprocessing").transform(base, "expected").kernel_ns[0] == 0) == goes


def copying_to_gpu(base, memory: str = "Pageable"):
    """Return a run whose first op is a copy of 5 ms to the device, for which the host waits."""
    first = np.arange(len(base.ops)) == 0
    ops = base.ops.assign(kernel_ns=changed(base.ops.kernel_ns, first, 5e6), sync=first)
    copied = np.array([f"Memcpy HtoD ({memory} -> Device)"], dtype=object)
    return replace(base, ops=ops, recorded=replace(base.recorded, copies=copied))


def test_at_best_the_gpu_makes_all_that_is_copied_to_it_from_pageable_memory():
    pageable, pinned = (copying_to_gpu(with_work("preprocessing"), each) for each in ("Pageable", "Pinned"))
    times = [
        find("preprocessing").transform(run, outcome).kernel_ns[0]
        for run, outcome in ((pageable, "best"), (pageable, "expected"), (pinned, "best"))
    ]
    assert times == [0.0, 5e6, 5e6]


def test_a_host_that_no_longer_keeps_the_device_waiting_runs_ahead_unless_it_waits_itself():
    base = with_work("python", tokens=4096, host_us=2.0)
    waiting = replace(base, ops=base.ops.assign(sync=np.arange(len(base.ops)) == 3))
    ends_in_wait = replace(base, tail=HostTail(waits=True))
    little = replace(base, outside=base.outside.scaled(0.01))
    host_bound = with_work("python")
    ahead = [find("preprocessing").applied(base, outcome).overlaps for outcome in ("worst", "expected", "best")]
    assert ahead == [False, True, True]
    others = (waiting, ends_in_wait, little, host_bound)
    assert not any(find("preprocessing").applied(run, "best").overlaps for run in others)
    assert after("preprocessing", base, "best") < replace(base, outside=Outside()).latency_ns


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("aten::index", "data[index]"),
        ("torch/serialization.py(943): save", "async_save"),
        ("aten::pin_memory", "torch.empty(shape, pin_memory=True)"),
        ("cv2.resize", "VideoDecoder"),
        ("slow.pillarize", "num_workers=8"),
    ],
)
def test_the_code_is_that_of_the_function_which_takes_most_time(name, code):
    base = with_work("preprocessing", name)
    little = with_work("preprocessing", "aten::randn").host_causes.assign(idle_ns=round(LOADED_NS / 10))
    both = pd.concat([little, base.host_causes])
    assert code in find("preprocessing").how_to(replace(base, host_causes=both))


def reading(name: str, place: float = 0.5, part: float = 1.0):
    """Return a run whose first op is a copy of 5 ms to the host, for which it waits, with host work at a place."""
    base = with_work("preprocessing", name)
    first = np.arange(len(base.ops)) == 0
    ops = base.ops.assign(kernel_ns=changed(base.ops.kernel_ns, first, 5e6), sync=first)
    recorded = replace(base.recorded, copies=np.array(["Memcpy DtoH (Device -> Pageable)"], dtype=object))
    outside = replace(base.outside, place=np.array([place]), ns=base.outside.ns * part)
    return replace(base, ops=ops, recorded=recorded, outside=outside)


def copied(run, outcome: str = "expected") -> tuple[float, bool]:
    """Return the time of the first op without the host's work, and whether the host waits for it."""
    ops = find("preprocessing").transform(run, outcome)
    return float(ops.kernel_ns[0]), bool(ops.sync[0])


@pytest.mark.parametrize("name", ["aten::argmax", "evaluate.add", ""])
def test_what_only_the_hosts_work_reads_stays_on_the_gpu(name: str):
    run = reading(name)
    assert [copied(run, outcome) for outcome in ("worst", "expected", "best")] == [
        (5e6, True),
        (0.0, False),
        (0.0, False),
    ]
    assert (
        after("preprocessing", run, "best") < after("preprocessing", run) < 3e6 < after("preprocessing", run, "worst")
    )


def test_what_else_may_read_a_copy_keeps_it_but_at_best():
    written = reading("PIL/Image.py(2433): save")
    short = reading("evaluate.add", part=0.05)
    for run in (written, short):
        assert (copied(run), copied(run, "best")) == ((5e6, True), (0.0, False))
    before = reading("read_frames", place=0.0)
    assert copied(before) == copied(before, "best") == (5e6, True)


def test_a_wait_at_the_end_goes_with_the_copy_that_it_was_for_unless_the_step_asks_to_wait_for_all():
    run = reading("evaluate.add", place=1.0)
    tail = HostTail(before_ns=1e5, after_ns=2e5, waits=True)
    copying = replace(run, ops=run.ops[np.roll(np.arange(len(run.ops)), -1)], tail=tail)
    asking = replace(copying, tail=replace(tail, for_all=True))
    assert find("preprocessing").applied(copying, "expected").tail == HostTail(before_ns=3e5)
    kept = find("preprocessing").applied(copying, "worst"), find("preprocessing").applied(asking, "expected")
    assert all(each.tail.waits for each in kept)


@pytest.mark.parametrize(("name", "goes"), [("aten::argmax", True), ("evaluate.add", False)])
def test_a_function_that_may_make_inputs_keeps_the_copy_of_results(name: str, goes: bool):
    run = reading(name)
    second = np.arange(len(run.ops)) == 1
    both = run.ops.assign(kernel_ns=changed(run.ops.kernel_ns, second, 5e6))
    facts = np.array(["Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)"], dtype=object)
    run = replace(run, ops=both, recorded=replace(run.recorded, copies=facts))
    assert (find("preprocessing").transform(run, "expected").kernel_ns[1] == 0) == goes
