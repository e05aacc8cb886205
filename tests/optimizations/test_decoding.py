"""Optimizations of decoding: a static cache, speculative decoding, and continuous batching."""

import numpy as np
import pytest
from msgspec.structs import replace
from op_lists import base, elementwise

from tracekit.advise import AssistedGeneration, DraftCheck, SpeculativeDecoding, advise, find, predicted_speedup
from tracekit.advise.optimizations.speculative_decoding import tokens_a_pass
from tracekit.analyzers.core import InputError, Interval, Outcomes
from tracekit.analyzers.cost import Append, Attention, Cost
from tracekit.analyzers.predict import joined, plain_launch_ns
from tracekit.analyzers.predict.op_columns import op_list
from tracekit.analyzers.results import Memory

KEYS, KV_HEADS, HEAD = 512, 8, 128


def decoding(gpu="h200", **options):
    baseline = base(gpu, **{"tokens": 1, "batch_size": 1, **options})
    return replace(baseline, ops=baseline.ops.assign(phase="decode"))


def append(elements):
    """Return the cost of adding one row to a cache that then has `elements` in KEYS rows."""
    return replace(elementwise(elements, "bf16", "copy"), work=Append(KEYS, 1))


def with_growing_cache():
    """Return two concatenations, and a fused attention that reads their outputs."""
    elements = KV_HEADS * KEYS * HEAD
    attention = Cost(
        4 * 32 * KEYS * HEAD, 2 * 2 * elements, 2 * 32 * HEAD, "attention", "bf16",
        work=Attention(1, 32, KV_HEADS, 1, KEYS, HEAD, False),
    )  # fmt: skip
    cat = append(elements)
    rows = [("aten::cat", cat), ("aten::cat", cat), ("aten::scaled_dot_product_attention", attention)]
    rows.append(("aten::cat", elementwise(HEAD, "bf16", "copy")))
    baseline = base(tokens=1, layers=1)
    columns = {"layer": "h.0", "layer_type": "Attention", "phase": "decode", "category": "kernel", "launches": 1}
    frame = op_list(
        **{name: [value] * 4 for name, value in columns.items()},
        name=[name for name, _ in rows],
        call=[name for name, _ in rows],
        host_ns=[10_000.0] * 4,
        kernel_ns=[4_000.0, 4_000.0, 8_000.0, 1_000.0],
        sync=[False] * 4,
        cost=[cost for _, cost in rows],
        message=[None] * 4,
    )
    return replace(baseline, ops=frame)


@pytest.mark.parametrize("slower", [1_000.0, 1.0])
def test_graphs_do_not_claim_what_the_static_cache_that_they_need_gives(slower):
    """Copies of a large cache take most of the step, or launches do."""
    base = with_growing_cache()
    times = base.ops.kernel_ns * np.where(base.ops.name == "aten::cat", slower, 1.0)
    base = replace(base, ops=base.ops.assign(kernel_ns=times))
    base = replace(base, stated_ns=base.latency_ns)
    advice = advise(base)
    graphs = next(each for each in advice.considered if each.id == "cuda-graphs")
    assert graphs.objection.endswith("static-cache.") == (slower > 1)
    assert [step.id for step in advice.plan][:1] == ["static-cache"] * (slower > 1)


def test_a_static_cache_writes_one_token_in_place_and_reads_all_of_its_length():
    after = find("static-cache").transform(with_growing_cache(), "expected")
    written = after[after.name == "aten::index_copy_"]
    assert [cost.write_bytes for cost in written.cost] == [2 * KV_HEADS * HEAD] * 2
    assert (written.kernel_ns < 4_000).all()
    (attention,) = [cost.work for cost in after.cost if isinstance(cost.work, Attention)]
    assert (attention.keys, attention.kv_heads) == (512, 32)
    assert len(after) == 4 + 5 + 3 + 8  # indices, then keys and values repeated and the mask as numbers, the mask
    assert (after.name == "aten::cat").sum() == 1


def test_a_static_cache_alone_loses_while_the_host_sets_the_pace():
    assert predicted_speedup(find("static-cache"), with_growing_cache()).high < 1
    memory = find("static-cache").memory(with_growing_cache(), Memory(weights=5, kv_cache=400))
    assert memory == Memory(weights=5, kv_cache=400)
    assert "Decoding does not append" in find("static-cache").objection(decoding())
    assert "Decoding does not append" in find("static-cache").objection(base())


def written_out_with_growing_cache():
    """Return layers with unfused attention; each appends to its keys and values."""
    run = decoding()
    cat = run.ops[:1].assign(name="aten::cat", cost=[append(32 * KEYS * HEAD)])
    rows = [row for i in range(len(run.ops)) for row in [*[cat] * 2 * (i % 12 == 2), run.ops[i : i + 1]]]
    return replace(run, ops=joined(*rows).renumbered())


@pytest.mark.parametrize("first", ["nothing", "compile"])
def test_a_static_cache_is_written_in_place_where_attention_is_written_out(first):
    run = written_out_with_growing_cache()
    run = find(first).applied(run, "expected") if first != "nothing" else run
    assert find("static-cache").objection(run) is None
    after = find("static-cache").transform(run, "expected")
    written = after[after.name == "aten::index_copy_"]
    assert [cost.write_bytes for cost in written.cost] == [2 * 32 * HEAD] * 8
    assert (after.name == "mask").sum() == 0  # attention that is written out has its mask already
    assert len(after) - len(run.ops) == (0 if first == "compile" else 4 * 5)


def test_tokens_that_a_pass_yields():
    assert tokens_a_pass(0.8, 4) == pytest.approx(1 + 0.8 + 0.64 + 0.512 + 0.4096)
    assert tokens_a_pass(0.5, 1) == 1.5


def test_a_better_draft_gains_more_and_is_asked_for_more_tokens():
    run = decoding(host_us=0.5)
    poor, good = find("speculative-decoding:0.3"), find("speculative-decoding:0.9")
    assert isinstance(good, SpeculativeDecoding)
    assert predicted_speedup(poor, run).expected < 1.3 < 2 < predicted_speedup(good, run).expected
    assert poor.drafted(run) < good.drafted(run)
    assert f"num_assistant_tokens = {good.drafted(run)}" in good.how_to(run)


def test_the_loop_of_assisted_generation_is_paid_once_a_pass():
    run = decoding(host_us=200.0)
    alone = SpeculativeDecoding(Outcomes(0.7, 0.7, 0.7))
    assisted = AssistedGeneration(alone.acceptance, alone.drafted(run))
    apart = assisted.transform(run, "expected").host_ns.sum() - alone.transform(run, "expected").host_ns.sum()
    tokens = tokens_a_pass(0.7, alone.drafted(run))
    assert apart * tokens == pytest.approx(900 * plain_launch_ns(run) - 150_000, rel=0.01)
    assert AssistedGeneration(alone.acceptance).drafted(run) >= alone.drafted(run)  # more tokens share the loop
    assert predicted_speedup(assisted, run).expected < predicted_speedup(alone, run).expected


def test_checking_stays_bound_by_memory():
    sizes = {
        tokens: find("speculative-decoding:0.95").drafted(decoding("a100", tokens=tokens)) for tokens in (1, 16, 32)
    }
    assert sizes[1] >= sizes[16] > sizes[32] >= 1
    assert "compute-bound" in find("speculative-decoding").objection(decoding("a100", tokens=128))
    assert "no decoding" in find("speculative-decoding").objection(base())


def test_an_interval_of_the_acceptance_gives_an_interval_of_the_gain():
    run = decoding(host_us=0.5)
    low, high, between = (
        predicted_speedup(find(f"speculative-decoding:{rate}"), run) for rate in ("0.5", "0.8", "0.5-0.8")
    )
    assert between.low == pytest.approx(low.low, rel=0.1)
    assert between.high == pytest.approx(high.high, rel=0.1)
    assert find("speculative-decoding:0.5-0.8").name == "speculative-decoding:0.5-0.8"


@pytest.mark.parametrize("argument", ["1.5", "0", "often", "0.8-0.5", "0.5-0.6-0.7", "nan", "0.5-1"])
def test_an_acceptance_rate_is_a_rate(argument):
    with pytest.raises(InputError, match="acceptance"):
        find(f"speculative-decoding:{argument}")


def test_in_flight_batching_fills_slots_and_pays_for_pages():
    run = find("sdpa").applied(decoding(batch_size=16), "expected")
    gain = predicted_speedup(find("paged-kv"), run)
    assert gain.expected == pytest.approx(0.95 / 0.6, rel=0.03)
    assert 1 < gain.low < gain.expected < gain.high <= 0.95 / 0.4 * 1.03
    assert "A single request" in find("paged-kv").objection(find("sdpa").applied(decoding(), "expected"))
    assert find("paged-kv").throughput


def test_the_check_of_a_draft_yields_its_tokens_less_what_its_mask_costs():
    run = with_growing_cache()
    transformed = DraftCheck(Interval(0.7, 0.7, 0.7)).transform(run, "expected")
    tokens = tokens_a_pass(0.7, 4)
    (attention,) = [cost.work for cost in transformed.cost if isinstance(cost.work, Attention)]
    assert (attention.queries, attention.kv_heads) == (5, 32)
    assert len(transformed) == len(run.ops) + 3 + 8
    longer = run.ops.host_ns.sum() + (3 + 8) * 3.5 * plain_launch_ns(run)
    assert transformed.host_ns.sum() * tokens == pytest.approx(longer)
