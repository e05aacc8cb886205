"""Execution traces: both forms are read, ids of memory become tensors, and damage is refused with advice."""

import gzip
import json
from pathlib import Path

import pytest

from tracekit.analyzers.core import InputError
from tracekit.analyzers.fuse import graph_of, roots
from tracekit.analyzers.fuse.groups import depths, find
from tracekit.analyzers.trace import execution_trace, load, recorded_calls

SAMPLES = Path(__file__).parents[2] / "examples" / "execution_traces"
FLOAT = "Tensor(float)"


def tensor(number, storage, offset=0):
    return [number, storage, offset, 32, 4, "cuda:0"]


def chakra(number, name, inputs, outputs, parent=2, *, in_place=False, types=None, **attributes):
    """Return a node of schema 1.1 for tensors of 4 x 8."""

    def side(values):
        kinds = types or [FLOAT if isinstance(each, list) else "Double" for each in values]
        shapes = [[4, 8] if isinstance(each, list) else [] for each in values]
        strides = [[8, 1] if isinstance(each, list) else [] for each in values]
        return {"values": values, "shapes": shapes, "types": kinds[: len(values)], "strides": strides}

    known = {"rf_id": number, "op_schema": f"{name}(Tensor(a{'!' * in_place}) self)", **attributes}
    attrs = [{"name": key, "type": "", "value": value} for key, value in known.items()]
    return {"id": number, "name": name, "ctrl_deps": parent, "inputs": side(inputs), "outputs": side(outputs)} | {
        "attrs": attrs
    }


def file_of(tmp_path, *nodes, schema="1.1.1-chakra.0.0.4"):
    thread = {"id": 2, "name": "[pytorch|profiler|execution_trace|thread]", "ctrl_deps": 1, "attrs": []}
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": schema, "nodes": [thread, *nodes]}))
    return path


def graph(tmp_path, *nodes):
    return graph_of(execution_trace.read(file_of(tmp_path, *nodes))).graph


def test_the_same_ops_are_read_of_every_schema(tmp_path):
    flat = {"id": 5, "name": "aten::mul", "parent": 2, "rf_id": 7, "seq_id": 3, "op_schema": "aten::mul(Tensor self)"}
    flat |= {"inputs": [tensor(1, 2), 2.0], "input_shapes": [[4, 8], []], "input_types": [FLOAT, "Double"]}
    flat |= {"outputs": [tensor(3, 4)], "output_shapes": [[4, 8]], "output_types": [FLOAT]}
    nested = chakra(5, "aten::mul", [tensor(1, 2), 2.0], [tensor(3, 4)], rf_id=7, seq_id=3)
    old = execution_trace.read(file_of(tmp_path, flat, schema="1.0.1"))[-1]
    assert old == execution_trace.read(file_of(tmp_path, nested))[-1]
    assert (old.record, old.sequence, old.inputs[0].strides, old.inputs[1]) == (7, 3, (8, 1), 2.0)


def test_memory_that_is_used_again_is_another_tensor(tmp_path):
    found = graph(
        tmp_path,
        chakra(10, "aten::neg", [tensor(1, 2)], [tensor(3, 4)]),
        chakra(11, "aten::exp", [tensor(3, 4)], [tensor(5, 6)]),
        chakra(12, "aten::neg", [tensor(5, 6)], [tensor(3, 4)]),  # after the first was freed
        chakra(13, "aten::exp", [tensor(3, 4)], [tensor(7, 8)]),
    )
    assert [(node.inputs, node.outputs) for node in found.nodes] == [
        ((0,), (1,)),
        ((1,), (2,)),
        ((2,), (3,)),
        ((3,), (4,)),
    ]


def test_memory_of_a_number_is_not_that_of_an_earlier_tensor(tmp_path):
    number = [5, 4, 0, 1, 8, "cpu"]
    found = graph(
        tmp_path,
        chakra(10, "aten::neg", [tensor(1, 2)], [tensor(3, 4)]),
        chakra(11, "aten::mul", [tensor(1, 2), number], [tensor(7, 8)], types=[FLOAT, "Tensor(double)"]),
    )
    assert not set(found.nodes[0].outputs) & set(found.nodes[1].inputs)
    assert find(found) == []


def test_what_is_written_in_place_is_read_through_views(tmp_path):
    found = graph(
        tmp_path,
        chakra(10, "aten::neg", [tensor(1, 2)], [tensor(3, 4)]),
        chakra(11, "aten::view", [tensor(3, 4)], [tensor(5, 4)]),
        chakra(12, "aten::slice", [tensor(3, 4)], [tensor(9, 4, 8)]),
        chakra(13, "aten::mul_", [tensor(3, 4), 2.0], [tensor(3, 4)], in_place=True),
        chakra(14, "aten::exp", [tensor(9, 4, 8)], [tensor(7, 8)]),
    )
    _, view, _, written, read = found.nodes
    assert not view.launches
    assert roots(found)[view.outputs[0]] == found.nodes[0].outputs[0]
    assert read.inputs == written.outputs


def test_calls_of_others_stand_for_what_they_call(tmp_path):
    found = graph(
        tmp_path,
        chakra(10, "aten::softmax", [tensor(1, 2)], [tensor(3, 4)]),
        chakra(11, "aten::_softmax", [tensor(1, 2)], [tensor(3, 4)], parent=10),
        chakra(12, "aten::mean", [tensor(3, 4)], [tensor(5, 6)]),
        chakra(13, "aten::sum", [tensor(3, 4)], [tensor(5, 6)], parent=12),
    )
    assert [found.name(i) for i in range(len(found.nodes))] == ["softmax", "mean"]


def test_what_no_op_wrote_waits_for_what_no_op_read(tmp_path):
    """A library's kernel, which is no op, reads the first result and writes what is added to it."""
    nodes = [
        chakra(10, "aten::neg", [tensor(1, 2)], [tensor(3, 4)]),
        chakra(11, "aten::exp", [tensor(3, 4)], [tensor(5, 6)]),
        chakra(12, "aten::empty_strided", [], [tensor(7, 8)]),
        chakra(13, "aten::add", [tensor(3, 4), tensor(7, 8)], [tensor(9, 10)]),
    ]
    found = graph(tmp_path, *nodes)
    assert [found.name(i) for i in range(len(found.nodes))] == ["neg", "exp", "unrecorded", "add"]
    assert depths(found) == [0, 0, 0, 1]
    assert [group.names for group in find(found)] == [("neg", "exp")]


def test_generated_code_may_write_all_that_it_is_given(tmp_path):
    found = graph(
        tmp_path,
        chakra(10, "aten::neg", [tensor(1, 2)], [tensor(3, 4)]),
        chakra(11, "triton_poi_fused_0", [tensor(3, 4), tensor(5, 6)], [], op_schema="", kernel_backend="triton"),
        chakra(12, "aten::exp", [tensor(5, 6)], [tensor(7, 8)]),
    )
    assert found.nodes[2].inputs[0] in found.nodes[1].outputs
    assert find(found) == []


def test_the_last_marked_step_is_read(tmp_path):
    steps = [{"id": 10 * n, "name": f"ProfilerStep#{n}", "ctrl_deps": 2, "attrs": []} for n in (1, 2)]
    ops = [chakra(10 * n + 1, "aten::neg", [tensor(1, 2)], [tensor(3, 4)], parent=10 * n) for n in (1, 2)]
    step = graph_of(execution_trace.read(file_of(tmp_path, steps[0], ops[0], steps[1], ops[1])))
    assert step.records == ((21,),)


def test_gradients_know_their_forward_op():
    calls = execution_trace.read(SAMPLES / "cpu_llama_train.et.json.gz")
    found = graph_of(calls).graph
    assert found.training
    pairs = {(found.name(node.forward), found.name(i)) for i, node in enumerate(found.nodes) if node.forward >= 0}
    assert ("silu", "silu_backward") in pairs
    assert ("log_softmax", "log_softmax_backward_data") in pairs
    assert {one for one, other in pairs if other == "silu_backward"} == {"silu"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "is not an execution trace"),
        ('{"traceEvents": []}', "is not an execution trace"),
        ('{"schema": "2.0", "nodes": []}', "schema that tracekit does not read"),
        ('{"schema": "1.1.1", "nodes": []}', "contains no calls"),
        ('{"schema": "1.1.1", "nodes": [{"id": 1, "name"', "is damaged"),
        ('{"schema": "1.1.1"}', "is damaged"),
    ],
)
def test_what_is_no_execution_trace_is_refused_with_advice(tmp_path, text, said):
    path = tmp_path / "et.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said) as refused:
        execution_trace.read(path)
    assert refused.value.hint


def test_a_truncated_gzip_is_damaged(tmp_path):
    path = tmp_path / "et.json.gz"
    path.write_bytes((SAMPLES / "cpu_llama_prefill.et.json.gz").read_bytes()[:9000])
    with pytest.raises(InputError, match="is damaged"):
        execution_trace.read(path)


@pytest.mark.parametrize("read", [execution_trace.read, recorded_calls.read])
def test_a_small_file_that_becomes_large_or_deep_is_refused(tmp_path, monkeypatch, read):
    path = tmp_path / "trace.json"
    monkeypatch.setenv("TRACEKIT_LIMIT_DOCUMENT", str(1 << 20))
    path.write_bytes(gzip.compress(b'{"schema": "1.1.1", "nodes": [' + b" " * (1 << 21) + b"]}"))
    with pytest.raises(InputError, match=r"more than 1,048,576 bytes.*TRACEKIT_LIMIT_DOCUMENT"):
        read(path)
    path.write_bytes(b'{"schema": "1.1.1", "nodes": [{}, ' + b'{"id": [' * 100_000)
    with pytest.raises(InputError, match=r"is damaged|cannot be joined"):
        read(path)


def test_a_negative_duration_takes_no_time_of_its_call(tmp_path):
    events = [
        {"cat": "cpu_op", "name": "aten::neg", "args": {"External id": 5, "Record function id": 9}},
        *({"cat": "kernel", "name": "k", "dur": us, "args": {"External id": 5}} for us in (1.5, -9.0)),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert recorded_calls.read(path).kernel_ns == {9: 1500.0}


def test_calls_without_ops_make_no_graph(tmp_path):
    with pytest.raises(InputError, match="no op that computes"):
        graph(tmp_path, chakra(10, "record", [], [], op_schema=""))


def test_an_execution_trace_alone_says_where_it_belongs():
    with pytest.raises(InputError, match="execution trace, which contains no times"):
        load(SAMPLES / "cpu_llama_prefill.et.json.gz")


def test_a_trace_tells_the_device_time_of_each_call(tmp_path):
    events = [
        {"cat": "cpu_op", "name": "aten::neg", "args": {"External id": 5, "Record function id": 9}},
        *({"cat": "kernel", "name": "k", "dur": 1.5, "args": {"External id": 5}} for _ in range(2)),
        {"cat": "kernel", "name": "another", "dur": 7, "args": {"External id": 6}},
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    assert recorded_calls.read(path) == recorded_calls.RecordedCalls({9: "aten::neg"}, {9: 3000.0})
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events[1:]}).encode()))
    with pytest.raises(InputError, match="cannot be joined"):
        recorded_calls.read(path)
