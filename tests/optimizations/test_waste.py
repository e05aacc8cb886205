"""Work that a better program would not do: each kind is found, and its look-alike is not."""

import json

import numpy as np
import op_lists
import pytest
from msgspec.structs import replace
from op_lists import elementwise

from tracekit.advise import OPTIMIZATIONS, Search, find
from tracekit.advise.optimizations.gradient_checkpointing import HOOKS
from tracekit.advise.waste.catalogue import WASTE, kinds
from tracekit.analyzers.attribute import Growth
from tracekit.analyzers.cost import Attention, Cost, estimate_ns
from tracekit.analyzers.predict import Outside, joined, plain_launch_ns
from tracekit.analyzers.results import HOST_CAUSES, Memory
from tracekit.reports.words import sentences

ENGINE = "autograd::engine::evaluate_function: "


def op(name, cost=None, *, call="", ns=None, phase="", layer="", category="kernel"):
    return {"name": name, "call": call or name, "cost": cost, "ns": ns, "phase": phase, "layer": layer} | {
        "category": category
    }


def copy(size=4096.0, *, ns=5_000.0, name="Memcpy HtoD (Pageable -> Device)"):
    return op("aten::copy_", ns=ns, category="memcpy") | {"copies": name, "copied": size}


def run(*rows, **facts):
    """Return a run of these ops; those without a time take their modelled one."""
    base = op_lists.base(layers=1)
    lists = [base.ops[:1]] * len(rows)
    ops = joined(*lists).renumbered()
    columns = {name: np.array([row[name] for row in rows], dtype=object) for name in ("name", "call", "phase", "layer")}
    cost = np.empty(len(rows), dtype=object)
    cost[:] = [row["cost"] for row in rows]
    times = [row["ns"] or (estimate_ns(row["cost"], base.gpu) if row["cost"] else 50_000.0) for row in rows]
    category = np.array([row["category"] for row in rows], dtype=object)
    host = np.array([row.get("planned", 0.0) for row in rows])
    ops = ops.assign(**columns, cost=cost, host_ns=ops.host_ns + host, kernel_ns=np.array(times), category=category)
    recorded = replace(
        base.recorded,
        copies=objects([row.get("copies", "") for row in rows]),
        copied=np.array([row.get("copied", 0.0) for row in rows]),
        doubles=np.array([row.get("doubles", 0.0) for row in rows]),
        again=np.array([row.get("again", False) for row in rows]),
        place=objects([row.get("place", "") for row in rows]),
        begun=np.array([row.get("begun", -1) for row in rows]),
        differentiable=np.array([row.get("differentiable", False) for row in rows]),
        planned_ns=np.array([row.get("planned", 0.0) for row in rows]),
        mask=objects([row.get("mask") for row in rows]),
        takes=np.array([row.get("takes", False) for row in rows]),
        selected=np.array([row.get("selected", False) for row in rows]),
        windows=np.array([row.get("windows", False) for row in rows]),
        expanded=np.array([row.get("expanded", False) for row in rows]),
        unbound=objects([row.get("unbound") for row in rows]),
        emptied=objects([row.get("emptied") for row in rows]),
        inputs=objects([row.get("inputs") for row in rows]),
        strides=objects([row.get("strides") for row in rows]),
        numbers=objects([row.get("numbers") for row in rows]),
        nodes=np.array([row.get("node", -1) for row in rows]),
        blocks=np.array([row.get("blocks", -1) for row in rows]),
        bluestein=np.array([row.get("bluestein", 0.0) for row in rows]),
    )
    base = replace(base, ops=ops, recorded=recorded, source=replace(base.source, capture=None), **facts)
    return replace(base, stated_ns=base.latency_ns)


def objects(values):
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def linear(rows=512, **more):
    return op("aten::addmm", op_lists.product(rows, 4096, 1024, "fp32"), **more)


def cast(elements, read, written, **more):
    return op("aten::_to_copy", Cost(0, read * elements, written * elements, "copy", "fp32"), **more)


def in_fp64(cost):
    return replace(cost, precision="fp64", read_bytes=2 * cost.read_bytes, write_bytes=2 * cost.write_bytes)


def table(rows, used, width=64):
    call, zeros = ENGINE + "EmbeddingBackward0", Cost(0, 0, 4 * rows * width, "copy", "fp32")
    adds = Cost(used * width, 4 * used * width, 4 * used * width, "embedding", "fp32")
    update = Cost(9 * rows * width, 16 * rows * width, 12 * rows * width, "optimizer", "fp32")
    return (
        op("aten::zero_", zeros, call=call, phase="backward"),
        op("aten::embedding_dense_backward", adds, call=call, phase="backward"),
        op("aten::_fused_adam_", update, phase="optimizer"),
    )


def trained(*rows, **facts):
    return run(linear(phase="forward"), *rows, op("aten::mm", phase="backward"), **facts)


AGAIN = {"again": True}
ITEM = (copy(512), linear(1), op("aten::relu", elementwise(4096, "fp32")), linear(1), op("aten::argmax", ns=3_000.0))
MASK = (op("aten::fill_", ns=90_000.0, call="aten::ones"), op("aten::triu", ns=90_000.0))
TOKENS = op("aten::embedding", ns=9_000.0)
LOGITS = op("aten::mm", op_lists.product(1024, 50_257, 768, "fp16"))
PICKED = op("aten::argmax", Cost(50_257, 2 * 50_257, 8, "reduction", "fp16", row=50_257))
ALL_PICKED = op("aten::argmax", Cost(50_257, 1024 * 2 * 50_257, 8, "reduction", "fp16", row=50_257))
ADDS = op("aten::add_", ns=40_000.0, call=ENGINE + "torch::autograd::AccumulateGrad", phase="backward")
ZEROS = op("aten::zero_", ns=40_000.0, phase="optimizer")
EACH = op("aten::bmm", op_lists.product(1, 1024, 2048, "bf16", batch=1024, weights=False))
WHOLE = elementwise(1 << 20, "fp32")

LOOP = (op("aten::roll", ns=2_000.0), op("aten::mul", ns=2_000.0), op("aten::clamp", ns=2_000.0))
PAIRS = elementwise(1 << 26, "fp32")
SPREAD = op("aten::sub", replace(PAIRS, read_bytes=1 << 20))
SUMMED = op("aten::sum", replace(PAIRS, write_bytes=1 << 20, family="reduction"))

ATTENTION = Cost(2**34, 2**24, 2**23, "attention", "bf16", work=Attention(8, 8, 8, 1024, 1024, 64, False, "cudnn"))
INDEXED = (
    op("aten::index", ns=50_000.0, phase="forward"),
    op("aten::_index_put_impl_", ns=900_000.0, call=ENGINE + "IndexBackward0", phase="backward"),
)


def gathers(matrices):
    return {"inputs": (f"[[{matrices}, 1024, 2048]]", '["float"]')}


def filtered(*shape):
    return {"inputs": (f"[[16, 8, 64, 64], {list(shape)}]", '["float", "float"]')}


def masked(*dims):
    return op("aten::_cudnn_attention_forward", ATTENTION) | {"mask": list(dims) or None}


def shared(items, *, of_data=True, later=()):
    """Return a step that trains one layer with as many inputs, whose gradients are added up."""
    calls = [linear(1, call="aten::linear", phase="forward"), op("aten::relu", ns=2_000.0, phase="forward")] * items
    backward = [op("aten::mm", ns=4_000.0, call=ENGINE + "MmBackward0", phase="backward")] * (items * (2 - of_data))
    added = [op("aten::add_", ns=2_000.0, call=ENGINE + "TBackward0", phase="backward")] * (items - 1)
    return run(*calls, *backward, *added, *later)


COALESCED = ("[[4096, 4096]]", '["float"]')
ADDED = Cost(1 << 20, 1 << 23, 1 << 22, "gather", "fp32")
OF_WEIGHT = op_lists.product(4096, 4096, 16_384, "bf16")
OF_WEIGHT = replace(OF_WEIGHT, work=replace(OF_WEIGHT.work, gradient=True))

FEATURES = op("aten::addmm", op_lists.product(4096, 64, 64, "fp32"), call="aten::linear", phase="forward")
EDGES = op("aten::_coalesce", call="aten::coalesce", ns=2_000_000.0, phase="forward") | {"inputs": COALESCED}
KEYS = {"inputs": ("[[8, 32, 1, 128], [8, 32, 4096, 128]]", '["c10::BFloat16", "c10::BFloat16"]')}
READ = 2 * 2 * 8 * 32 * 4096 * 128
ATTENDING = Cost(4 * READ, READ, 1 << 16, "attention", "bf16", work=Attention(8, 32, 32, 1, 4096, 128, False, "flash"))
ATTENDS = op("aten::attention", ATTENDING) | KEYS
PLANTED = {
    "repeated-heads": run(*[op("aten::copy_", Cost(0, READ // 16, READ // 2, "copy", "bf16"))] * 2, ATTENDS, linear()),
    "computed-again": trained(*[EDGES, FEATURES] * 3),
    "planned-again": run(linear(), masked() | {"planned": 500_000.0}),
    "padding": run(*[linear(), masked(8, 1, 1024, 1024)] * 4),
    "explicit-mask": run(linear(), masked(1024, 1024)),
    "sorted-gradients": trained(*INDEXED),
    "odd-lengths": run(linear(), op("aten::_fft_r2c", ns=900_000.0) | {"bluestein": 0.8}),
    "costly-algorithm": run(linear(), op("aten::_conv_depthwise2d", ns=900_000.0) | filtered(8, 1, 11, 11)),
    "contended-sums": run(linear(), op("aten::scatter_add_", ADDED, ns=9_000_000.0)),
    "unused-gradients": trained(op("aten::mm", OF_WEIGHT, phase="backward")),
    "loop-of-small-ops": trained(*LOOP * 40),
    "spread-and-summed": run(linear(), SPREAD, op("aten::pow", PAIRS), SUMMED),
    "autograd-in-inference": run(*[op("aten::relu", ns=2_000.0) | {"differentiable": True}] * 8),
    "kv-cache": run(linear(), growth=Growth(20, 256.0)),
    "one-call-per-item": run(*ITEM * 8),
    "double-precision": run(op("aten::addmm", in_fp64(op_lists.product(512, 512, 512, "fp32")))),
    "recomputation": trained(*[linear(phase="backward") | AGAIN] * 2),
    "dense-table": trained(*table(1_000_000, 4096)),
    "zeroed-gradients": trained(*[ZEROS] * 8, *[ADDS] * 8),
    "remade-constants": run(linear(), *MASK),
    "copied-again": run(*[copy(1 << 20, ns=90_000.0), op("aten::add", WHOLE), linear()] * 4),
    "casts-back": run(cast(1 << 20, 2, 4), op("aten::mul", WHOLE), cast(1 << 20, 4, 2)),
    "weights-cast": run(*[cast(4096 * 1024, 4, 2), op("aten::addmm", op_lists.product(8, 4096, 1024, "fp16"))] * 2),
    "gathered-weights": run(linear(), op("aten::index", ns=900_000.0) | gathers(8), EACH),
    "unused-logits": run(TOKENS, LOGITS, PICKED),
    "training-mode": run(linear(), op("aten::native_dropout", WHOLE)),
}
ALIKE = {
    "repeated-heads": run(*[op("aten::copy_", Cost(0, READ // 2, READ // 2, "copy", "bf16"))] * 2, ATTENDS, linear()),
    "computed-again": trained(*[EDGES, op("aten::topk", ns=9_000.0, phase="forward"), FEATURES] * 3),
    "planned-again": run(linear(), masked()),
    "padding": run(*[linear(), masked(1, 1, 1024, 1024)] * 4),
    "explicit-mask": run(linear(), masked(1, 8, 1024, 1024)),
    "sorted-gradients": trained(INDEXED[0] | {"ns": 600_000.0}, INDEXED[1]),
    "odd-lengths": run(linear(), op("aten::_fft_r2c", ns=900_000.0)),
    "costly-algorithm": run(linear(), op("aten::_conv_depthwise2d", ns=900_000.0) | filtered(8, 1, 7, 7)),
    "contended-sums": run(linear(), op("aten::scatter_add_", ADDED, ns=20_000.0)),
    "unused-gradients": trained(op("aten::mm", OF_WEIGHT, phase="backward"), ZEROS),
    "loop-of-small-ops": run(*[linear(layer="block"), *LOOP] * 40),
    "spread-and-summed": run(linear(), op("aten::add", PAIRS), SUMMED),
    "autograd-in-inference": trained(*[op("aten::relu", ns=2_000.0, phase="forward") | {"differentiable": True}] * 8),
    "kv-cache": run(linear()),
    "one-call-per-item": run(*[linear(1), op("aten::relu", elementwise(4096, "fp32"))] * 8),
    "double-precision": run(linear(), op("aten::fill_", ns=400.0) | {"doubles": 1.0}),
    "recomputation": trained(*[linear(phase="backward")] * 2),
    "dense-table": trained(*table(30_000, 4096)),
    "zeroed-gradients": trained(*[ADDS] * 8),
    "remade-constants": run(linear(), op("aten::bernoulli_"), op("aten::mul", WHOLE), op("aten::arange", ns=1_000.0)),
    "copied-again": run(*[copy(1 << 20, ns=90_000.0), linear()] * 4),
    "casts-back": run(cast(1 << 20, 2, 4), op("aten::rsqrt", WHOLE), op("aten::mul", WHOLE), cast(1 << 20, 4, 2)),
    "weights-cast": trained(cast(4096 * 1024, 4, 2), op("aten::addmm", op_lists.product(8, 4096, 1024, "fp16"))),
    "gathered-weights": run(linear(), op("aten::index", ns=900_000.0) | gathers(1024), EACH),
    "unused-logits": run(TOKENS, LOGITS, ALL_PICKED),
    "training-mode": trained(op("aten::native_dropout", WHOLE, phase="forward")),
}


def test_convolutions_in_64_bits_become_tf32_and_may_lose_what_they_are_slower_than_modelled():
    cost = replace(in_fp64(op_lists.product(65_536, 64, 576, "fp32")), family="convolution")
    base = run(op("aten::cudnn_convolution", cost, ns=10 * estimate_ns(cost, op_lists.base().gpu)))
    worst, expected, best = (find("double-precision").applied(base, each).ops for each in ("worst", "expected", "best"))
    assert {ops.cost[0].precision for ops in (worst, expected, best)} == {"tf32"}
    in_tf32 = estimate_ns(best.cost[0], base.gpu)
    assert best.kernel_ns[0] == pytest.approx(in_tf32)
    assert 8 * in_tf32 < worst.kernel_ns[0] < base.ops.kernel_ns[0]
    assert 2 * in_tf32 < expected.kernel_ns[0] < worst.kernel_ns[0] / 2


@pytest.mark.parametrize("name", PLANTED)
def test_it_is_found_and_the_step_is_shorter_without_it(name):
    base, waste = PLANTED[name], find(name)
    assert waste.obstacle(base) is None
    without = [waste.applied(base, outcome).latency_ns for outcome in ("worst", "expected", "best")]
    assert base.latency_ns > without[1] >= without[2] and without[0] >= without[1]
    said = sentences((*waste.reason(base), *waste.evidence(base)))
    assert said and "{" not in said and waste.how(base)


def test_sums_of_a_function_of_each_pair_are_no_product():
    assert find("spread-and-summed").obstacle(run(linear(), SPREAD, op("aten::sin", PAIRS), SUMMED))
    assert find("spread-and-summed").obstacle(run(linear(), SPREAD, op("aten::log_sigmoid", PAIRS), SUMMED))
    of_rows = op("aten::sin", elementwise(4096, "fp32"))
    assert find("spread-and-summed").obstacle(run(linear(), SPREAD, of_rows, SUMMED)) is None


def test_sums_of_few_pairs_are_no_reason_for_far_larger_tensors():
    activations = op("aten::add", elementwise(1 << 29, "fp32"))
    base = run(activations, SPREAD, op("aten::mul", replace(PAIRS, read_bytes=2 << 28)), SUMMED, activations)
    left = find("spread-and-summed").transform(base, "expected").kernel_ns / base.ops.kernel_ns
    assert (left < 1).tolist() == [False, True, True, True, False]


def test_a_loop_of_an_optimizer_of_pytorch_has_its_own_kind():
    update = [op(each, ns=2_000.0, phase="optimizer") for each in ("aten::mul_", "aten::addcdiv_")]
    assert find("loop-of-small-ops").obstacle(trained(*update * 40))
    update = [op(each, ns=2_000.0, call="Optimizer.step#SGD.step") for each in ("aten::mul_", "aten::add_")]
    assert find("loop-of-small-ops").obstacle(trained(*update * 40))


def update(*lists, name="aten::_fused_adamw_", phase="optimizer"):
    kinds = str(["TensorList"] * len(lists)).replace("'", '"')
    return op(name, ns=2_000.0, phase=phase) | {"inputs": (str(list(map(list, lists))), kinds)}


def test_groups_of_one_tensor_are_a_loop_in_the_optimizer():
    count, one = update([[]], name="aten::_foreach_add_"), update([[64, 64]], [[64, 64]])
    loops, base = find("loop-of-small-ops"), trained(*[count, one] * 40)
    assert loops.obstacle(base) is None and "group" in sentences(loops.reason(base))
    assert (loops.transform(base, "expected").name == "aten::_fused_adamw_").sum() == 1


@pytest.mark.parametrize(("call", "said"), [("aten::item", True), ("aten::linalg_cholesky", False)])
def test_numbers_that_a_loop_reads_are_not_those_by_which_a_factorization_tells_whether_it_succeeded(call, said):
    base = trained(*[*LOOP, op("aten::_local_scalar_dense", ns=2_000.0, call=call)] * 40)
    loops = find("loop-of-small-ops")
    assert loops.obstacle(base) is None
    assert ("get_total_norm" in loops.how_to(base)) == said
    assert ("linalg.cholesky" in loops.how_to(base)) != said


@pytest.mark.parametrize(
    "rows",
    [
        [update([[64, 64], [64]], [[64, 64], [64]])] * 40,  # a group for each layer
        [update([], [])] * 40,  # of many tensors, whose shapes the profiler drops
        [update([[64, 64]]), op("aten::mm", phase="backward")] * 40,  # as soon as each gradient is there
    ],
)
def test_groups_of_several_tensors_and_optimizers_in_the_backward_pass_are_no_loop(rows):
    counts = [update([[]], name="aten::_foreach_add_")] * (len(rows) == 40)
    assert find("loop-of-small-ops").obstacle(trained(*(each for row in rows for each in (*counts, row))))


def test_compile_leaves_code_outside_of_the_model_as_it_is():
    layered = [linear(layer="a"), op("aten::relu", WHOLE, layer="a"), op("aten::mul", WHOLE, layer="a")]
    base = run(*LOOP * 40, *layered)
    after = find("compile").transform(base, "expected")
    outside = np.isin(after.index, base.ops.index[: 3 * 40])
    assert outside.sum() == 3 * 40
    assert after.host_ns[outside][1:].tolist() == base.ops.host_ns[1 : 3 * 40].tolist()
    assert len(after) - outside.sum() < len(layered)


@pytest.mark.parametrize("name", ALIKE)
def test_its_look_alike_is_not(name):
    assert find(name).obstacle(ALIKE[name])


@pytest.mark.parametrize("name", [each for each in PLANTED if each not in ("training-mode", "planned-again")])
def test_a_plan_begins_with_waste_that_is_a_tenth_of_the_step(name):
    base = PLANTED[name]
    if find(name).expected_speedup(base) < 1.1:
        pytest.skip("too small to come first")
    assert Search(base).plan()[0].needless


def test_waste_that_the_host_hides_comes_behind_what_hides_it():
    base = trained(*table(20_000_000, 4096))
    hidden = Outside(np.array(["preprocessing"], dtype=object), np.array([1.2 * base.busy_ns]), np.array([1.0]))
    base = replace(base, outside=hidden)
    base = replace(base, stated_ns=base.latency_ns)
    assert find("dense-table").expected_speedup(base) < 1.1
    assert [step.id for step in Search(base).plan()][:2] == ["preprocessing", "dense-table"]


def managed(frees: int, cause: str = "allocation", other: str = "unexplained"):
    base = op_lists.base()
    causes = np.array([cause, other], dtype=object)
    outside = Outside(causes, np.array([30e6, 20e6]), np.array([0.0, 0.5]))
    rows = HOST_CAUSES.frame(
        {"step": [0], "cause": [cause], "name": ["cudaFree"], "location": ["train.py:7"], "caller": [""]}
        | {"gaps": [1], "idle_ns": [30_000_000]}
    )
    base = replace(base, outside=outside, host_causes=rows, frees=frees)
    return replace(base, stated_ns=base.latency_ns)


def test_freed_memory_is_waste_with_the_time_beside_it_that_nothing_explains():
    waste, base = find("memory-management"), managed(12)
    assert waste.applied(base, "best").latency_ns == pytest.approx(base.latency_ns - 50e6)
    assert waste.applied(base, "worst").latency_ns == pytest.approx(base.latency_ns - 24e6)
    assert "train.py:7" in sentences(waste.evidence(base))


def test_waits_that_free_memory_belong_to_what_frees_it():
    def freed(frees: int):
        base = managed(frees)
        waits = np.arange(len(base.ops)) == len(base.ops) // 2
        recorded = replace(base.recorded, to_free=waits, differentiable=waits)
        return replace(base, ops=base.ops.assign(sync=waits), recorded=recorded, overlaps=False)

    base, once = freed(12), freed(0)
    assert not find("memory-management").transform(base, "worst").sync.any()
    assert find("avoid-syncs").objection(base) and find("avoid-syncs").objection(once) is None
    assert find("cuda-graphs").objection(base).endswith("see memory-management.")
    kept = [find("autograd-in-inference").outside(each, "expected").total(("allocation",)) for each in (base, once)]
    assert kept == [30e6, 0.0]


def test_an_allocator_that_grows_is_no_waste_and_a_collector_is():
    assert find("memory-management").objection(managed(0))
    assert find("memory-management").objection(managed(0, "garbage-collection")) is None


def test_checkpointing_is_needed_where_memory_is_short():
    base = PLANTED["recomputation"]
    small = replace(base, gpu=replace(base.gpu, memory_gb=0.001), least_memory=Memory(weights=1 << 20))
    assert find("recomputation").objection(small)
    assert "profile_memory" in find("recomputation").notes(base)[0]


@pytest.mark.parametrize(
    ("node", "tensors"), [("MmBackward0", 4), ("CheckpointFunctionBackward", 0)], ids=["hooks", "reentrant"]
)
def test_without_checkpointing_both_passes_pack_no_saved_tensors(node: str, tensors: int):
    base = trained(*[linear(phase="forward")] * 20, *[linear(phase="backward", call=ENGINE + node) | AGAIN] * 2)
    recorded = replace(base.recorded, again_ns=np.where(base.ops.phase == "backward", 3_000.0, 0.0))
    left = find("recomputation").transform(replace(base, recorded=recorded), "expected")
    kept = base.ops.host_ns[~base.recorded.run_again(base.ops)].sum() - 3_000.0
    hooks = HOOKS.expected * 2 / 3 * tensors * plain_launch_ns(base)
    assert left.host_ns.sum() == pytest.approx(kept - hooks)


def test_without_hooks_a_launch_still_takes_its_time():
    left = find("recomputation").transform(PLANTED["recomputation"], "best")
    assert left.host_ns.sum() == pytest.approx(len(left) * plain_launch_ns(PLANTED["recomputation"]))


def test_a_tied_table_is_swept_by_the_output_layer_too():
    rows, width = 1_000_000, 64
    head = op("aten::mm", op_lists.product(64, rows, width, "fp32"), phase="forward")
    assert find("dense-table").objection(trained(*table(rows, 4096), head))


def test_a_sum_that_sorts_its_indices_before_it_fills_the_table_reads_the_rows_of_a_batch_once():
    fill, adds, update = table(40_000, 4096)  # 10 times as large as the rows that are used
    assert not find("dense-table").objection(trained(adds, fill, adds, update))
    assert find("dense-table").objection(trained(adds, *table(30_000, 4096)))


def test_an_update_of_few_rows_launches_less_than_one_of_the_whole_table():
    fill, adds, update = table(50_000_000, 4096)
    base = trained(fill, adds, update)
    slow = base.ops.assign(launches=np.array([1, 1, 1, 50, 1]), host_ns=np.array([1e4, 1e4, 1e4, 5e6, 1e4]))
    waits, freely = (find("dense-table").transform(replace(base, ops=slow), each) for each in ("expected", "best"))
    assert waits.host_ns[3] < 1e5 and waits.launches[3] == 5
    assert waits.sync[3] and not freely.sync[3], "the host reads how many rows there are"
    assert waits.kernel_ns[3] == pytest.approx(base.ops.kernel_ns[3] * 4096 / 50_000_000)


@pytest.mark.parametrize(
    ("name", "small", "launches"),
    [
        pytest.param("aten::_foreach_add_", 50_000_000, 10, id="a pass over both tables"),
        pytest.param("aten::_foreach_add_", 100_000, 5, id="one of which is small"),
        pytest.param("aten::add_", 50_000_000, 5, id="a pass over one table"),
    ],
)
def test_rows_of_each_table_are_updated_alone(name: str, small: int, launches: int):
    sweep = op(name, elementwise(64 * (50_000_000 + small), "fp32"), phase="optimizer")
    base = trained(*table(50_000_000, 4096)[:2], *table(small, 64)[:2], sweep)
    many = base.ops.assign(launches=np.array([1, 1, 1, 1, 1, 50, 1]))
    assert find("dense-table").transform(replace(base, ops=many), "expected").launches[5] == launches


def test_tensors_beside_a_table_are_updated_one_by_one_too():
    lists = json.dumps([[[50_000_000, 64], *[[64]] * 7]] * 2)
    sweep = op("aten::_foreach_add_", elementwise(64 * 50_000_000, "fp32"), phase="optimizer")
    given = {"inputs": (lists, '["TensorList", "TensorList"]')}

    def step(update):
        base = trained(*table(50_000_000, 4096)[:2], update)
        slow = base.ops.assign(launches=np.array([1, 1, 1, 50, 1]))
        return find("dense-table").transform(replace(base, ops=slow), "expected")

    alone, together = step(sweep), step(sweep | given)
    assert (alone.launches[3], together.launches[3]) == (5, 5 + 7)
    assert together.host_ns[3] > alone.host_ns[3]


def test_gradients_of_a_table_that_is_read_twice_are_not_added_up_as_a_whole():
    fill, adds, update = table(1_000_000, 4096)
    total = op("aten::add_", elementwise(64_000_000, "fp32"), call=fill["call"], phase="backward")
    base = trained(fill, adds, fill, adds, total, update)
    left = find("dense-table").transform(base, "expected")
    assert left.kernel_ns[left.name == "aten::add_"].sum() == 0 < base.ops.kernel_ns[5]


def test_without_shapes_the_passes_over_a_table_are_told_by_their_time():
    fill, adds, _ = table(1_000_000, 4096)
    passes = [op(f"aten::_foreach_{name}", ns=ns, phase="optimizer") for name, ns in (("mul", 1.6e6), ("addcdiv", 2e6))]
    small = op("aten::_fused_adamw_", ns=50_000.0, phase="optimizer")
    rows = [fill | {"cost": None, "ns": 600_000.0}, adds | {"cost": None, "ns": 90_000.0}, *passes, small]
    baseline = trained(*rows)
    worst, expected = (
        find("dense-table").transform(baseline, outcome).kernel_ns[3:6] for outcome in ("worst", "expected")
    )
    assert expected.tolist() == [0.0, 0.0, 50_000.0]
    assert 0.0 < worst[0] < 0.1 * 1.6e6


def test_decoding_that_appends_to_a_cache_is_no_call_per_item():
    assert find("one-call-per-item").objection(run(*(*ITEM, op("aten::cat", WHOLE)) * 8))


def test_items_that_are_trained_one_by_one_are_one_call_if_their_inputs_are_data():
    waste = find("one-call-per-item")
    assert waste.objection(shared(12)) is None and waste.objection(shared(12, of_data=False))
    assert waste.applied(shared(12), "expected").latency_ns < shared(12).latency_ns / 2
    update, layer = op("aten::_fused_adam_", phase="optimizer"), linear(1, call="aten::linear", phase="forward")
    assert waste.objection(shared(12, of_data=False, later=[update, *[layer] * 40])), "other weights"


def test_one_call_for_all_items_launches_as_often_as_that_of_one():
    lookups = [op("aten::embedding", ns=2_000.0)] * 40
    base = run(linear(), *lookups, op("aten::cat", ns=2_000.0), linear())
    after = find("one-call-per-item").applied(base, "expected")
    assert after.ops.launches.sum() == base.ops.launches.sum() - 39
    assert after.ops.host_ns.sum() == pytest.approx(base.ops.host_ns.sum() - 39 * base.ops.host_ns[1])


@pytest.mark.parametrize(("linears", "left"), [(2, 2), (9, 1)])
def test_linear_layers_before_tables_are_tables_if_they_are_many(linears, left):
    lookups = [op("aten::embedding", ns=2_000.0)] * 9
    layers = [op("aten::addmm", ns=2_000.0, call="aten::linear")] * linears
    base = run(op("aten::relu", ns=2_000.0), *layers, *lookups, op("aten::cat", ns=2_000.0), linear())
    after = find("one-call-per-item").transform(base, "expected")
    assert after.name.tolist() == [
        "aten::relu",
        *["aten::addmm"] * left,
        "aten::embedding",
        "aten::cat",
        linear()["name"],
    ]


@pytest.mark.parametrize(("name", "one"), [("embedding_dense_backward", True), ("fill_", False)])
def test_tables_are_one_if_their_gradients_take_long_but_not_if_they_are_large(name, one):
    lookups = [op("aten::gather", ns=2_000.0, call="aten::embedding")] * 9
    back = [op(f"aten::{name}", call=ENGINE + "EmbeddingBackward0", ns=90_000.0, phase="backward")] * 9
    base = run(*lookups, op("aten::cat", ns=2_000.0), *back)
    assert (find("one-call-per-item").objection(base) is None) == one


COLUMNS = Cost(1 << 24, 1 << 27, 1 << 26, "gather", "fp32")


@pytest.mark.parametrize(("width", "times", "contended"), [(8, 4, True), (8, 2, False), (1024, 4, False)])
def test_sums_of_many_values_an_address_wait_for_each_other(width, times, contended):
    shapes = {"inputs": (f"[[4096, {width}], [4096], [4096, 4096]]", '["float", "long int", "float"]')}
    bytes_ns = COLUMNS.bytes / op_lists.base(layers=1).gpu.bandwidth * 1e9
    base = run(linear(), op("aten::index_add_", COLUMNS, ns=times * bytes_ns) | shapes)
    waste = find("contended-sums")
    assert (waste.objection(base) is None) == contended
    if contended:
        assert waste.transform(base, "expected").kernel_ns[1] < 0.5 * base.ops.kernel_ns[1]


def test_constants_that_a_loop_makes_again_are_a_part_of_the_loop():
    chain = [op("aten::arange", ns=2_000.0), op("aten::exp", ns=2_000.0)]
    loop = trained(*[*chain, op("aten::maximum", ns=2_000.0)] * 40)
    assert find("loop-of-small-ops").objection(loop) is None and find("remade-constants").objection(loop)
    layers = run(*[*chain, linear()] * 40)
    assert find("remade-constants").objection(layers) is None


def test_an_optimizer_visits_one_table_in_place_of_many():
    columns = [op("aten::addmm", ns=2_000.0, call="aten::linear")] * 9 + [op("aten::embedding", ns=2_000.0)] * 9
    base = run(*columns, op("aten::stack", ns=2_000.0), op("aten::_foreach_add_", ns=2_000.0, phase="optimizer"))
    left = find("one-call-per-item").applied(base, "expected").ops
    assert len(left) == 4 and left.host_ns[-1] == pytest.approx(base.ops.host_ns[-1] / 9)


def test_decisions_for_items_are_one_call_and_tokens_are_not():
    decision = (linear(1), op("aten::relu", ns=2_000.0), linear(1), op("aten::argmax", ns=3_000.0))
    token = (op("aten::embedding", ns=2_000.0), *decision)
    waste = find("one-call-per-item")
    assert waste.objection(run(*decision * 12)) is None and waste.objection(run(*token * 12))


def test_an_answer_of_many_numbers_is_for_many_items():
    read = copy(name="Memcpy DtoH (Device -> Pinned)")
    assert find("one-call-per-item").objection(run(*(*ITEM[:4], read) * 8)) is None
    assert find("one-call-per-item").objection(run(*(*ITEM[:4], *[read] * 32) * 8))


def test_products_of_doubles_without_shapes_gain_what_tf32_gives_at_the_high_end():
    base = run(linear(), op("aten::mm", ns=1e6) | {"doubles": 1.0})
    worst, expected, best = (
        find("double-precision").transform(base, each).kernel_ns[1] for each in ("worst", "expected", "best")
    )
    peaks = base.gpu.peaks_tflops
    assert best == pytest.approx(1e6 * min(0.45, peaks["fp64"] / peaks[base.gpu.runs_as("tf32")]))
    assert best < expected < worst == pytest.approx(0.7e6)


LAYER = "autograd::engine::evaluate_function: AddmmBackward0"
EXAMPLE = [linear(1, phase="forward")] * 2 + [op("aten::mm", call=LAYER, ns=2_000.0, phase="backward")] * 3


def test_gradients_of_examples_are_one_call_unless_they_are_added_up_or_used():
    norm = op("aten::_foreach_norm", ns=2_000.0, phase="forward")
    waste, call = find("gradients-one-by-one"), [*EXAMPLE, norm]
    base = run(*[row | {"call": "aten::linear"} if row["name"] == "aten::addmm" else row for row in call] * 16)
    assert waste.objection(base) is None
    assert waste.applied(base, "expected").latency_ns < base.latency_ns / 4
    sums = op("aten::add_", call=ENGINE + "torch::autograd::AccumulateGrad", ns=2_000.0, phase="backward")
    guided = [call[0] | {"call": "aten::linear"}] * 2 + call[2:4]
    assert (
        waste.objection(run(*guided * 16))
        and waste.objection(run(*[*EXAMPLE, sums] * 16))
        and waste.objection(run(*call * 4))
    )
    assert waste.objection(run(*[*call, op("aten::_foreach_sub_", ns=2_000.0, phase="forward")] * 16))


IMAGE = [op("aten::cudnn_convolution", call="aten::conv2d", ns=2_000.0, phase="forward"), EXAMPLE[0]]
IMAGE = [IMAGE[0], IMAGE[1] | {"call": "aten::linear"}, *EXAMPLE[2:4]]
IMAGE += [op("aten::convolution_backward", call=ENGINE + "ConvolutionBackward0", ns=2_000.0, phase="backward")]


def after_each(*names):
    return [op(f"aten::{name}", ns=2_000.0, phase="forward") for name in names]


@pytest.mark.parametrize(
    ("between", "one"),
    [
        (["_foreach_addcmul_"], True),
        (["pow", "add_"] * 3, True),
        (["square", "mul", "add"] * 3, True),
        (["_foreach_addcmul_", "_foreach_addcdiv_"], False),
        (["mul", "sub_"] * 3, False),
        (["sign", "mul", "sub"], False),
    ],
)
def test_gradients_of_images_are_one_call_if_their_squares_are_added_up(between, one):
    waste, base = find("gradients-one-by-one"), run(*[*IMAGE, *after_each(*between)] * 16)
    assert (waste.objection(base) is None) == one


@pytest.mark.parametrize("shapes", ["[[64, 32], [64, 32]]", "[[64, 32], []]"])
def test_a_product_of_two_gradients_is_a_square_and_one_with_a_rate_is_a_step(shapes):
    times, adds = after_each("mul", "add_")
    times |= {"inputs": (shapes, '["float", "float"]')}
    waste, base = find("gradients-one-by-one"), run(*[*IMAGE, *[times, adds] * 3] * 16)
    assert (waste.objection(base) is None) == ("32], [64" in shapes)


def test_a_joined_answer_that_the_host_reads_is_no_cache():
    answer = (*ITEM, op("aten::cat", ns=3_000.0), copy(name="Memcpy DtoH (Device -> Pageable)"))
    assert find("one-call-per-item").objection(run(*answer * 8)) is None


def test_after_an_optimization_waste_that_the_recorded_run_does_not_show_is_none():
    waste, base = find("loop-of-small-ops"), PLANTED["loop-of-small-ops"]
    assert waste.objection(replace(base, origin=base)) is None
    assert waste.objection(replace(base, origin=run(linear())))
    after = find("cuda-graphs").applied(base, "expected")
    assert after.origin is base and waste.applied(after, "expected").origin is base


def test_each_kind_is_an_optimization_with_words():
    assert [each.id for each in WASTE if each.needless] == [each.id for each in OPTIMIZATIONS if each.needless]
    assert set(kinds()) == {each.id for each in WASTE} and len(WASTE) == 37
    assert all("Not to be confused with" in kind.what for kind in kinds().values())


def searching(*between):
    """Return a training step that finds the neighbours of points that stay, and trains on them."""
    points, distances = "[[4096, 3], [1024, 3]]", "[[4096, 1024]]"
    found = [
        op("aten::mm", Cost(0, 0, 4 << 22, "gemm", "fp32"), call="aten::cdist", phase="forward")
        | {"inputs": (points, '["float", "float"]')},
        op("aten::topk", ns=5_000_000.0, phase="forward") | {"inputs": (distances, '["float"]')},
    ]
    return trained(
        *found, *between, FEATURES, op("aten::mm", ns=9_000.0, call=ENGINE + "MmBackward0", phase="backward")
    )


def test_neighbours_of_points_that_stay_are_searched_again_in_each_step():
    waste = find("computed-again")
    assert waste.expected_speedup(searching()) > 2
    moved = op("aten::add_", elementwise(4096 * 3, "fp32"), phase="forward") | {"inputs": ("[[4096, 3]]", '["float"]')}
    assert waste.obstacle(searching(moved))


def test_a_matrix_without_shapes_stays_if_nothing_between_is_long_enough_to_write_it():
    waste = find("computed-again")
    solved = (
        op("aten::copy_", ns=8_000.0, call="aten::linalg_solve"),
        op("aten::linalg_lu_factor_ex", ns=90_000.0, call="aten::linalg_solve"),
        op("aten::mul", ns=1_500.0),
    )
    assert waste.expected_speedup(run(*solved * 8)) > 2
    assert waste.obstacle(run(*(*solved, op("aten::add", ns=6_000.0)) * 8))


def test_the_ops_on_logits_are_found_around_others():
    head = op("aten::mm", op_lists.product(1024, 50_257, 768, "bf16"), call="aten::linear")
    wide = {"inputs": ("[[1, 1024, 50257]]", '["float"]')}
    divided = op("aten::div_", elementwise(1024 * 50_257, "fp32")) | wide
    picked = op("aten::topk", Cost(0, 4 * 50_257, 64, "reduction", "fp32")) | {"inputs": ("[[1, 50257]]", '["float"]')}
    base = run(TOKENS, head, divided, op("aten::fill_", elementwise(16, "fp32")), divided, picked)
    left = find("unused-logits").transform(base, "expected").kernel_ns
    assert (left[[1, 2, 4]] < 0.1 * base.ops.kernel_ns[[1, 2, 4]]).all()
    assert left[3] == base.ops.kernel_ns[3]


def given(*shapes):
    kinds = ["long int" if len(shape) == 1 else "float" for shape in shapes]
    return {"inputs": (str(list(map(list, shapes))), str(kinds).replace("'", '"'))}


@pytest.mark.parametrize(("ns", "found"), [(2_000_000.0, True), (30_000.0, False)])
def test_sums_by_index_put_sort_outside_of_autograd_too(ns, found):
    put = op("aten::_index_put_impl_", ns=ns, call="aten::index_put_") | given((1024, 2048), (4_000_000,))
    assert (find("sorted-gradients").obstacle(run(linear(), put)) is None) == found


def test_what_an_index_of_unknown_size_picks_may_change():
    picks = op("aten::index", ns=9_000.0, phase="forward") | given((64, 12_000))
    flips = op("aten::flip", Cost(0, 4 * 192_000, 4 * 192_000, "copy", "fp32"), phase="forward") | given((16, 12_000))
    long = op("aten::conv1d", ns=5_000_000.0, phase="forward") | given((1, 16, 9), (16, 12_000))
    back = op("aten::mm", ns=9_000.0, call=ENGINE + "MmBackward0", phase="backward")
    assert find("computed-again").obstacle(trained(picks, flips, long, FEATURES, back))
    assert find("computed-again").obstacle(trained(flips, long, FEATURES, back)) is None


def test_waste_that_a_trace_shows_comes_before_padding_that_it_lets_suspect():
    search = Search(run(*[masked(8, 1, 1024, 1024)] * 60, TOKENS, LOGITS, PICKED))
    gains = [search.gain((find(name),)).expected for name in ("unused-logits", "padding")]
    assert gains[0] < gains[1]
    assert [step.id for step in search.plan()][:2] == ["unused-logits", "padding"]
