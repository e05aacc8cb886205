"""Captures of CUDA graphs in traces of their own, as serving engines record them, and a trace of the replays."""

from pathlib import Path

import pytest
from handmade import Handmade, addmm
from msgspec.structs import replace
from test_attr_graphs import CALLS, KERNELS, capture, codes, layers, ops, replay

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import with_captures
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load
from tracekit.answer.from_trace import with_captures_of

SAMPLES = Path(__file__).parents[2] / "examples/traces/graphs"
"""Recorded on an H100: GPT-2 of two layers, and work on two streams."""
BATCHES = (4, 1, 2, 4)
OF_THE_MODEL = {"aten::addmm", "aten::mm", "aten::native_layer_norm", "aten::tanh", "aten::pow"}
GEMM = "nvjet"


@pytest.fixture(scope="module")
def recorded():
    """The replays with their captures, analyzed, and the trace."""
    files = [(file.name, load(file)) for file in sorted(SAMPLES.glob("*.json.gz")) if file.name != "replay.json.gz"]
    trace = with_captures(load(SAMPLES / "replay.json.gz"), files)
    return trace, analyze(trace)


def kernels_with_ops(trace, work):
    """Kernels and their ops, those of the model itself: its masks are made by other ops while a stream is captured."""
    names = trace.host["name"].astype(object).to_numpy()
    told = [(str(name), names[op]) for name, op in zip(work["name"], work["op"], strict=True)]
    return [(name, op) for name, op in told if op in OF_THE_MODEL or name.startswith(GEMM)]


@pytest.mark.parametrize("step", range(4))
def test_recorded_replays_have_the_ops_of_the_same_kernels_launched_one_by_one(recorded, step):
    """Each file holds two passes without a graph before its capture: their kernels tell their ops themselves."""
    trace, analysis = recorded
    work = analysis.work[(analysis.work["step"] == step) & (analysis.work["captured"] >= 0)].sort_values("start_ns")
    eager = load(SAMPLES / f"bs_{BATCHES[step]}.json.gz")
    launched = analyze(eager).work.sort_values("start_ns")
    assert 70 <= len(work) <= 72
    once = kernels_with_ops(eager, launched)
    assert once[: len(once) // 2] == once[len(once) // 2 :]
    assert len(once) // 2 >= 16
    assert kernels_with_ops(trace, work) == once[: len(once) // 2]


def test_recorded_replays_have_modules_and_shapes(recorded):
    analysis = recorded[1]
    assert analysis.coverage.op == pytest.approx(0.9, abs=0.01)
    assert {"GPT2Attention", "GPT2MLP", "Conv1D"} <= set(analysis.layers["type"])
    assert codes(analysis)["graph-not-mapped"] == 4 * 7  # those of two streams, whose nodes have no ids
    products = analysis.work[analysis.work["family"].astype(str) == "gemm"]
    by_step = products.groupby("step")["flops"].sum()
    assert by_step[0] == by_step[3] == pytest.approx(4 * by_step[1], rel=0.05)


def calls(rows):
    return [CALLS[0], ("addmm", "cudaLaunchKernel", addmm(rows, 32, 16)), CALLS[2]]


def captured(rows, at=0, base_ns=0, rank=None, around="decode"):
    """A trace with a warm-up and a capture, in a range that a profiler's schedule makes."""
    made = Handmade()
    made.host("range", "ProfilerStep#0", at, 400)
    made.host("op", "aten::addmm", at + 10, 7, **addmm(rows, 32, 16))
    made.host("runtime", "cudaLaunchKernel", at + 12, 1, correlation=1)
    made.device("gemm", at + 20, 5, correlation=1)
    made.host("range", around, at + 150, 200)
    capture(made, at + 200, calls(rows))
    trace = made.trace()
    return replace(trace, metadata=replace(trace.metadata, base_ns=base_ns, rank=rank))


def replays(*batches, graphs=None, rank=None, step="step[DECODE bs={}]"):
    made = Handmade()
    for number, batch in enumerate(batches):
        made.host("range", step.format(batch), 200 * number, 150)
        graph = (graphs or {}).get(batch, 1)
        for node, (name, category) in enumerate(KERNELS):
            values = {"correlation": number + 1, "graph": graph, "graph_node": node + 1}
            made.device(name, 200 * number + 20 + 10 * node, 8, category=category, **values)
        made.host("runtime", "cudaGraphLaunch", 200 * number + 5, 2, correlation=number + 1)
    trace = made.trace()
    return replace(trace, metadata=replace(trace.metadata, rank=rank))


def rows_of(trace, analysis):
    """The first dimension of the product in each step."""
    shapes = trace.host["shapes"].astype(object).to_numpy()
    gemms = analysis.work[analysis.work["name"] == "gemm"]
    return [int(str(shapes[row]).split("[[")[1].split("]")[1].split("[")[1].split(",")[0]) for row in gemms["op"]]


def test_kernels_of_a_replay_have_the_ops_and_layers_of_the_capture():
    alone = replays(4, 4)
    assert codes(analyze(alone))["graph-not-mapped"] == 6
    trace = with_captures(alone, [("bs_4.json.gz", captured(4))])
    analysis = analyze(trace)
    assert ops(trace, analysis) == ["aten::fill", "aten::addmm", "aten::relu"] * 2
    assert layers(analysis) == ["fill", "addmm", "relu"] * 2
    assert "graph-not-mapped" not in codes(analysis)
    assert codes(analysis)["merged-captures"] == 1
    flops = analysis.work.loc[analysis.work["name"] == "gemm", "flops"]
    assert flops.tolist() == [pytest.approx(2 * 4 * 32 * 16, rel=0.1)] * 2


def test_steps_times_and_counters_are_those_of_the_replay():
    alone, files = replays(4, 4, 4), [("bs_4.json.gz", captured(4))]
    before, after = analyze(alone), analyze(with_captures(alone, files))
    assert after.timeline.steps["wall_ns"].tolist() == before.timeline.steps["wall_ns"].tolist()
    assert (after.timeline.wall_ns, after.timeline.busy_ns) == (before.timeline.wall_ns, before.timeline.busy_ns)
    of_host = ("launches", "graph-launches", "synchronisations", "kernels")
    counted = [{row.counter: row.value for row in each.counts.itertuples()} for each in (before, after)]
    assert {name: counted[0].get(name) for name in of_host} == {name: counted[1].get(name) for name in of_host}


def test_captures_of_several_batch_sizes_are_told_by_the_order_of_graphs():
    """Graphs are captured from the largest batch size to the smallest, as engines do; file names do not state sizes."""
    files = [("b", captured(2, base_ns=2_000_000)), ("a", captured(4, base_ns=1_000_000))]
    trace = with_captures(replays(4, 2, graphs={4: 7, 2: 9}), files)
    assert rows_of(trace, analyze(trace)) == [4, 2]


def test_a_graph_is_told_by_the_batch_size_in_the_name_of_its_file():
    """Three captures, two graphs replayed: the smallest that holds the batch, as engines choose."""
    files = [(f"bs_{size}_rank0.json.gz", captured(size, base_ns=10_000_000 - size)) for size in (8, 4, 1)]
    trace = with_captures(replays(3, 1, graphs={3: 7, 1: 9}), files)
    assert rows_of(trace, analyze(trace)) == [4, 1]
    unnamed = with_captures(replays(3, 1, graphs={3: 7, 1: 9}), [(str(n), each) for n, (_, each) in enumerate(files)])
    assert codes(analyze(unnamed))["graph-not-mapped"] == 6


def test_a_graph_of_vllm_is_told_by_the_range_around_its_capture():
    """vLLM writes a file for each size, whose names differ in the time only; a range in each names the tokens."""
    files = [
        (f"graph_capture_rank_0.{size}1.pt.trace.json.gz", captured(size, base_ns=-size, around=f"capture_{size}_FULL"))
        for size in (8, 4, 1)
    ]
    batches = replays(3, 1, graphs={3: 7, 1: 9}, step="execute_context_0(0)_generation_{0}({0})")
    trace = with_captures(batches, files)
    assert rows_of(trace, analyze(trace)) == [4, 1]
    unnamed = with_captures(batches, [(name, captured(size)) for (name, _), size in zip(files, (8, 4, 1), strict=True)])
    assert codes(analyze(unnamed))["graph-not-mapped"] == 6


def test_several_graphs_of_a_batch_size_are_told_by_their_order():
    """Piecewise graphs: two layers with the same kernels and other shapes, captured for two batch sizes."""

    def piecewise(size, base_ns):
        made = Handmade()
        for at, wide in ((0, 1), (200, 2)):
            capture(made, at, [CALLS[0], ("addmm", "cudaLaunchKernel", addmm(size, 32, 16 * wide)), CALLS[2]])
        trace = made.trace()
        return replace(trace, metadata=replace(trace.metadata, base_ns=base_ns))

    files = [("bs_8.json", piecewise(8, 0)), ("bs_4.json", piecewise(4, 10**9))]
    made = Handmade()
    for step in range(2):
        made.host("range", "step[DECODE bs=3]", 400 * step, 300)
        for number, graph in enumerate((7, 8)):
            at, correlation = 400 * step + 150 * number, 10 * step + number + 1
            made.host("runtime", "cudaGraphLaunch", at + 5, 2, correlation=correlation)
            for node, (name, category) in enumerate(KERNELS):
                values = {"correlation": correlation, "graph": graph, "graph_node": node + 1}
                made.device(name, at + 20 + 10 * node, 8, category=category, **values)
    analysis = analyze(with_captures(made.trace(), files))
    flops = analysis.work.loc[analysis.work["name"] == "gemm", "flops"].tolist()
    assert flops == [pytest.approx(2 * 4 * 32 * 16 * wide, rel=0.1) for wide in (1, 2)] * 2


def test_captures_of_other_ranks_are_left_out():
    files = [("rank0", captured(4, rank=0)), ("rank1", captured(2, rank=1))]
    trace = with_captures(replays(4, rank=0), files)
    assert rows_of(trace, analyze(trace)) == [4]
    assert codes(analyze(trace))["files-without-captures"] == 1
    with pytest.raises(InputError, match="contain no capture"):
        with_captures(replays(4, rank=3), files)


def test_the_files_of_a_folder(tmp_path):
    for name in ("bs_4_rank0.json.gz", "bs_4_rank1.json.gz", "notes.txt"):
        (tmp_path / name).write_text("")
    read = []
    for rank in (None, 1):
        with pytest.raises(InputError, match="contain no capture"):
            with_captures_of(replays(4, rank=rank), [tmp_path], lambda file: read.append(file.name) or replays(4))
    assert read == ["bs_4_rank0.json.gz", "bs_4_rank1.json.gz", "bs_4_rank1.json.gz"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no file that ends in"):
        with_captures_of(replays(4), [tmp_path / "empty"], read)


def test_a_trace_without_a_capture_is_refused():
    made = Handmade()
    replay(made, 0, 1, KERNELS)
    with pytest.raises(InputError, match="contain no capture"):
        with_captures(replays(4), [("x", made.trace())])
