"""The best outcome of an optimization is a bound, not a guess."""

import numpy as np
import op_lists
import pandas as pd
import pytest
from msgspec.structs import replace

from tracekit.advise import find, predicted_speedup
from tracekit.advise.gains import worthwhile
from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import Append, Attention, Cost, Product, hardware, is_unaligned
from tracekit.analyzers.predict import Outside
from tracekit.analyzers.predict.outside import of_new_shapes
from tracekit.analyzers.predict.recorded import Recorded
from tracekit.analyzers.predict.running import with_decoding
from tracekit.analyzers.predict.simulation import side_by_side
from tracekit.analyzers.predict.transforms.fusion import fused_cost

MEGABYTE = 1 << 20


def test_the_gradient_of_an_odd_vocabulary_is_unaligned():
    gradient = op_lists.product(50_257, 768, 8_192, "bf16", weights=False)
    gradient = replace(gradient, work=Product(1, 50_257, 768, 8_192, gradient=True))
    assert is_unaligned(gradient, hardware.find("h100"))
    assert not is_unaligned(replace(gradient, work=replace(gradient.work, gradient=False)), hardware.find("h100"))
    assert not is_unaligned(replace(gradient, work=replace(gradient.work, m=50_304)), hardware.find("h100"))


def test_a_fused_kernel_reads_an_input_again_only_if_it_is_another_tensor():
    once = Cost(1, MEGABYTE, MEGABYTE, "pointwise", "bf16")
    twice = replace(once, read_bytes=2 * MEGABYTE)
    smaller = replace(once, read_bytes=MEGABYTE + 4_096)
    assert fused_cost([once, twice], "best").read_bytes == MEGABYTE
    assert fused_cost([once, twice], "expected").read_bytes > 1.9 * MEGABYTE
    assert fused_cost([once, smaller], "best").read_bytes == MEGABYTE + 4_096


def test_a_long_chain_reads_its_inputs_again_unless_a_forward_pass_saved_them():
    ops = [Cost(1, 2 * MEGABYTE, MEGABYTE, "pointwise", "fp32")] * 300
    worst, expected, best = (fused_cost(ops, outcome) for outcome in ("worst", "expected", "best"))
    assert (expected.write_bytes, best.write_bytes) == (10 * MEGABYTE, MEGABYTE)
    assert (expected.read_bytes, best.read_bytes) == (80 * MEGABYTE, 40 * MEGABYTE)
    assert worst.bytes > 0.8 * 900 * MEGABYTE
    assert fused_cost(ops, "expected", saved_inputs=True).read_bytes > 300 * MEGABYTE
    moves = [replace(ops[0], family="gather")] * 300
    assert fused_cost(moves, "expected").read_bytes > 300 * MEGABYTE


def test_an_input_of_unknown_size_may_have_been_read_before():
    once = Cost(1, 6_000, 4_000, "pointwise", "fp32", estimated=True)
    assert fused_cost([once, replace(once, read_bytes=9_000)], "best").read_bytes == 6_000
    assert fused_cost([once, replace(once, read_bytes=19_000)], "best").read_bytes == 21_000


def test_kernels_tried_while_compiling_go_with_it():
    base = op_lists.base()
    tried = np.arange(len(base.ops)) < 10
    compiling = Outside(np.array(["compilation"], dtype=object), np.array([1e9]), np.array([0.0]))
    base = replace(base, outside=compiling, recorded=Recorded(compiling=tried))
    ops = find("recompiling").applied(base, "expected").ops
    assert not ops.kernel_ns[tried].any() and not ops.host_ns[tried].any()
    assert (ops.kernel_ns[~tried] == base.ops.kernel_ns[~tried]).all()
    assert find("recompiling").applied(base, "worst").ops.kernel_ns[tried].all()


def test_time_without_a_record_may_be_the_profilers():
    base = op_lists.base()
    unknown = Outside(np.array(["unexplained"], dtype=object), np.array([1e7]), np.array([0.0]))
    timed = replace(base, outside=unknown)
    profiled = replace(timed, profiler_share=Interval(0.4, 0.5, 0.6))
    compiled = [predicted_speedup(find("compile"), each).high for each in (timed, profiled)]
    assert compiled[1] > compiled[0]


def test_streams_run_side_by_side_as_far_as_they_and_the_gpu_allow():
    base = op_lists.base(layers=1)
    busy = float(base.ops.kernel_ns.sum())
    work = pd.DataFrame({"stream": [0, 1], "duration_ns": [0.6 * busy, 0.4 * busy]})
    assert 0.6 <= side_by_side(base.ops, work, base.gpu) <= 1.0
    unknown = base.ops.assign(cost=None)
    assert side_by_side(unknown, work, base.gpu) == pytest.approx(0.6)
    assert side_by_side(unknown, work[:1], base.gpu) == 1.0


def test_graphs_and_static_shapes_need_no_planning():
    base = op_lists.base()
    host = base.ops.host_ns.copy()
    host[5] += 5e7
    planned = np.where(np.arange(len(host)) == 5, 5e7, 0.0)
    slow = replace(base, ops=base.ops.assign(host_ns=host))
    known = replace(slow, recorded=Recorded(planned_ns=planned))
    assert slow.other_host_ns > 4e7 and known.other_host_ns == base.other_host_ns
    assert find("cuda-graphs").applied(known, "expected").latency_ns < 5e6
    assert find("compile").applied(known, "expected").latency_ns > 5e7


def test_an_op_equal_to_an_earlier_one_plans_nothing_unless_lists_of_numbers_may_differ():
    products = [op_lists.product(64, 64, 64, "fp32")] * 3
    ops = op_lists.op_list(name=["aten::addmm"] * 3, call=["aten::linear"] * 3, layer=["a"] * 3, cost=products)
    given = np.full(3, None, dtype=object)
    planning = np.full(3, 3e5)
    assert of_new_shapes(planning, ops, given).tolist() == [3e5] * 3
    given[:] = [("[[64],[64,64],[64,64],[]]", '["float","float","float","Scalar"]')] * 3
    assert of_new_shapes(planning, ops, given).tolist() == [3e5, 0.0, 0.0]
    given[:] = [("[[64],[64,64],[64,64],[]]", '["float","float","float","ScalarList"]')] * 3
    assert of_new_shapes(planning, ops, given).tolist() == [3e5] * 3


def test_one_query_to_many_keys_is_decoding():
    ops = op_lists.base(layers=1).ops.assign(phase="")
    attention = Cost(1, 1, 1, "attention", "bf16", work=Attention(1, 12, 12, 1, 119, 64, causal=False))
    costs = ops.cost.copy()
    costs[2] = attention
    decoding = with_decoding(ops.assign(cost=costs))
    assert set(decoding.phase) == {"decode"}
    costs[3] = replace(attention, work=replace(attention.work, queries=7))
    assert set(with_decoding(ops.assign(cost=costs)).phase) == {""}


def test_kernels_of_a_graph_grow_by_waves_of_blocks():
    base = op_lists.base()
    few = np.full(len(base.ops), 12)
    graphed = replace(base, ops=base.ops.assign(cost=None, sync=False), batch_by_shapes=1)
    fits = replace(graphed, recorded=Recorded(blocks=few))
    batching = find("batching:8")
    assert batching.applied(fits, "worst").ops.kernel_ns.sum() == pytest.approx(base.ops.kernel_ns.sum())
    full = replace(graphed, recorded=Recorded(blocks=few * 100))
    assert batching.applied(full, "worst").ops.kernel_ns.sum() > 5 * base.ops.kernel_ns.sum()
    assert batching.applied(graphed, "worst").ops.kernel_ns.sum() == pytest.approx(8 * base.ops.kernel_ns.sum())
    assert batching.applied(graphed, "best").ops.kernel_ns.sum() == pytest.approx(base.ops.kernel_ns.sum())


def test_products_of_few_rows_in_a_graph_read_their_weights_once_for_more():
    base = op_lists.base()
    blocks = np.full(len(base.ops), 1_200)
    graphed = replace(base, ops=base.ops.assign(cost=None, sync=False), batch_by_shapes=1)
    after = {
        side: [
            find("batching:8").applied(replace(graphed, recorded=recorded), outcome).ops.kernel_ns.sum()
            for outcome in ("worst", "expected")
        ]
        for side in (8, 128)
        for recorded in [Recorded(blocks=blocks, tile_side=np.full(len(base.ops), side))]
    }
    assert after[8][1] == pytest.approx(base.ops.kernel_ns.sum())
    assert after[8][1] < after[8][0] < 0.5 * after[128][0]
    assert after[128][1] > 2 * after[8][1]


def test_a_larger_batch_gains_no_more_than_its_sequences():
    base = op_lists.base()
    graphed = replace(base, ops=base.ops.assign(cost=None), batch_by_shapes=1, profiler_share=Interval(0.4, 0.5, 0.6))
    few = replace(graphed, recorded=Recorded(blocks=np.full(len(base.ops), 500)))
    gain = predicted_speedup(find("batching:8"), few)
    assert gain.low < gain.expected < gain.high < 8.5


def test_a_mend_of_a_mistake_counts_by_its_expected_gain():
    gain = Interval(1.01, 1.09, 1.2)
    assert worthwhile(find("avoid-syncs"), gain) and not worthwhile(find("compile"), gain)
    assert not worthwhile(find("avoid-syncs"), Interval(0.98, 1.09, 1.2))
    assert not worthwhile(find("avoid-syncs"), Interval(1.0, 1.01, 1.2))


def test_attention_that_is_written_out_decodes_if_a_token_is_appended_and_asks_once():
    ops = op_lists.base(tokens=1, keys=119, layers=1).ops.assign(phase="")
    assert set(with_decoding(ops).phase) == {""}
    costs = ops.cost.copy()
    costs[1] = replace(op_lists.elementwise(12 * 119 * 64, "bf16", "copy"), work=Append(119, 1))
    assert set(with_decoding(ops.assign(cost=costs)).phase) == {"decode"}
