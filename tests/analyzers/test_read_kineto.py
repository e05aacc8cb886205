"""Layouts, categories, arguments and metadata of Kineto traces."""

import json

import msgspec
import pytest
from kineto_files import assert_same, codes, kernel, load_events, load_text, op, shared_text, shared_trace

from tracekit.analyzers import analyze
from tracekit.analyzers.trace import CaptureInfo, Latency, load
from tracekit.analyzers.trace.kineto.chunks import CHUNK_BYTES


def relaid(raw, layout):
    events = raw["traceEvents"]
    rest = {k: v for k, v in raw.items() if k != "traceEvents"}
    return {
        "metadata first": lambda: json.dumps({**rest, "traceEvents": events}),
        "metadata last": lambda: json.dumps({"traceEvents": events, **rest}),
        "one key a line": lambda: json.dumps({**rest, "traceEvents": events}, indent=2),
        "compact": lambda: json.dumps({"traceEvents": events, **rest}, separators=(",", ":")),
        "byte order mark": lambda: "\ufeff" + json.dumps({**rest, "traceEvents": events}),
    }[layout]()


@pytest.mark.parametrize("layout", ["metadata first", "metadata last", "one key a line", "compact", "byte order mark"])
@pytest.mark.parametrize("name", ["h100_bert-small", "ranks/rank-1"])
def test_any_layout_reads_the_same(shared, tmp_path, name, layout):
    text = relaid(json.loads(shared_text(shared, name)), layout)
    assert_same(load_text(tmp_path, text), load(shared_trace(shared, name)))


def test_a_bare_array_has_the_same_events(shared, tmp_path):
    events = json.loads(shared_text(shared, "h100_bert-small"))["traceEvents"]
    trace, whole = load_text(tmp_path, json.dumps(events)), load(shared_trace(shared, "h100_bert-small"))
    assert trace.host["start_ns"].equals(whole.host["start_ns"])
    assert trace.device["duration_ns"].equals(whole.device["duration_ns"])
    assert trace.metadata.devices == () and codes(trace) == {}


def test_chunks_change_nothing(shared, tmp_path, monkeypatch):
    """Boundaries fall anywhere when blocks are small."""
    monkeypatch.setattr("tracekit.analyzers.trace.kineto.chunks.CHUNK_BYTES", 20_000)
    monkeypatch.setattr("tracekit.analyzers.trace.source._BLOCK_BYTES", 7_001)
    monkeypatch.setattr("tracekit.analyzers.trace.source._GZIP_BLOCK_BYTES", 999)
    chunked = load_text(tmp_path, shared_text(shared, "ranks/rank-0"))
    monkeypatch.undo()
    assert len(shared_text(shared, "ranks/rank-0")) < CHUNK_BYTES
    assert_same(chunked, load(shared_trace(shared, "ranks/rank-0")))


def test_objects_inside_arguments_are_not_boundaries(tmp_path, monkeypatch):
    monkeypatch.setattr("tracekit.analyzers.trace.kineto.chunks.CHUNK_BYTES", 2_000)
    monkeypatch.setattr("tracekit.analyzers.trace.source._BLOCK_BYTES", 1_000)
    monkeypatch.setattr("tracekit.analyzers.trace.source._GZIP_BLOCK_BYTES", 1_000)
    nested = {"kernel_kwargs": [{"name": "a", "x": 1}, {"name": "b"}], "last": [{"ph": 1}]}
    events = [op(f"op{i}", ts=i * 10.0, args={"External id": i, **nested}) for i in range(300)]
    trace = load_events(tmp_path, *events)
    assert trace.host["external_id"].tolist() == list(range(300))
    assert "skipped-events" not in codes(trace) and "repaired-events" not in codes(trace)


def test_other_arrays_after_the_events(tmp_path):
    properties = [{"id": i, "name": "GPU", "numSms": 5, "computeMajor": 9, "computeMinor": 0} for i in range(2)]
    text = json.dumps({"traceEvents": [op(), kernel()], "deviceProperties": properties, "baseTimeNanoseconds": 1000})
    trace = load_text(tmp_path, text)
    assert [(d.id, d.name, d.sms, d.compute_capability) for d in trace.metadata.devices] == [
        (0, "GPU", 5, (9, 0)),
        (1, "GPU", 5, (9, 0)),
    ]
    assert trace.metadata.base_ns == 1000 + 10_000


def test_other_events_after_the_events(tmp_path, monkeypatch):
    """A second list of objects that look like events is metadata, however many chunks it fills."""
    monkeypatch.setattr("tracekit.analyzers.trace.kineto.chunks.CHUNK_BYTES", 2_000)
    monkeypatch.setattr("tracekit.analyzers.trace.source._BLOCK_BYTES", 1_000)
    monkeypatch.setattr("tracekit.analyzers.trace.source._GZIP_BLOCK_BYTES", 1_000)
    events = [op(ts=float(i)) for i in range(50)]
    trace = load_text(tmp_path, json.dumps({"traceEvents": events, "others": events, "baseTimeNanoseconds": 7}))
    assert len(trace.host) == 50 and trace.metadata.base_ns == 7 and "truncated" not in codes(trace)


def test_compact_rank_is_read(tmp_path):
    text = '{"distributedInfo":{"backend":"nccl","rank":3,"world_size":8},"traceEvents":[' + json.dumps(op()) + "]}"
    metadata = load_text(tmp_path, text).metadata
    assert (metadata.rank, metadata.world_size) == (3, 8)


def test_categories_of_2021(tmp_path):
    events = [
        op(cat="Operator", args={"external id": 3, "Input dims": [[2, 3]], "Input type": ["float"]}),
        op("cudaLaunchKernel", 11.0, 1.0, cat="Runtime", args={"correlation": 9, "external id": 3}),
        {**kernel(), "cat": "Kernel", "tid": "stream 7", "args": {"correlation": 9, "external id": 3}},
        {**kernel("copy", ts=20.0), "cat": "Memcpy", "tid": "stream 20"},
        {**kernel("set", ts=30.0), "cat": "Memset", "pid": 2, "tid": "stream 0", "args": {}},
    ]
    trace = load_events(tmp_path, *events)
    assert trace.host["category"].tolist() == ["op", "runtime"]
    assert trace.host["external_id"].tolist() == [3, 3]
    assert trace.host["shapes"].tolist() == ["[[2,3]]", ""]
    assert trace.device["category"].tolist() == ["kernel", "memcpy", "memset"]
    assert trace.device["stream"].tolist() == [7, 7, 0]
    assert trace.device["device"].tolist() == [0, 0, 2]
    assert trace.device["external_id"].tolist() == [3, -1, -1]


def test_marks_were_ops_until_torch_1_10(tmp_path):
    marks = ["ProfilerStep#3", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#SGD.step"]
    names = [*marks, "aten::mm", "MulBackward0"]
    trace = load_events(tmp_path, *(op(name, 10 * at, 5, cat="Operator") for at, name in enumerate(names)), kernel())
    assert trace.host["category"].tolist() == ["range"] * 3 + ["op"] * 2


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("xpu_runtime", "runtime"),
        ("xpu_driver", "runtime"),
        ("privateuse1_runtime", "runtime"),
        ("mtia_runtime", "runtime"),
        ("privateuse1_kernel", "kernel"),
        ("hpu_op", "kernel"),
        ("mtia_ccp_events", "kernel"),
        ("xpu_memcpy", "memcpy"),
        ("privateuse1_memset", "memset"),
    ],
)
def test_other_backends(tmp_path, category, kind):
    trace = load_events(tmp_path, op(), {**kernel(), "cat": category})
    table = trace.host if kind == "runtime" else trace.device
    assert kind in table["category"].tolist()
    assert "unknown-category" not in codes(trace)


def test_what_is_no_work_is_left_out(tmp_path):
    others = ["gpu_user_annotation", "cuda_sync", "cuda_event", "Trace", "collective_comm", "cuda_profiler_range"]
    flow = {"ph": "s", "id": 1, "pid": 1, "tid": 1, "ts": 1.0, "cat": "ac2g", "name": "ac2g"}
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1.0, "args": {}}
    function = op("torch/nn/functional.py(12): linear", cat="python_function")
    trace = load_events(tmp_path, op(), kernel(), *(op(cat=c) for c in others), flow, memory, function)
    assert (len(trace.host), len(trace.device)) == (1, 1)
    assert codes(trace) == {"no-shapes": 1}


def test_a_triton_op_with_a_stream_is_an_op(tmp_path):
    trace = load_events(tmp_path, op("triton_poi_fused_add_0", args={"stream": 7, "grid": "grid(100,)"}))
    assert trace.host["category"].tolist() == ["op"] and trace.device.empty


def test_module_events_are_kept_and_other_python_is_not(tmp_path):
    events = [op(n, cat="python_function") for n in ("nn.Module: Linear_0", "<built-in method linear>")]
    trace = load_events(tmp_path, *events)
    assert trace.host[["category", "name"]].values.tolist() == [["module", "nn.Module: Linear_0"]]


def test_short_calls_are_kept_that_tell_when_batches_arrive(tmp_path):
    names = ("pin_memory.py(55): pin_memory", "multiprocessing/queues.py(86): put", "train.py(1): step")
    trace = load_events(tmp_path, *(op(n, cat="python_function") for n in names))
    assert trace.host["name"].tolist() == list(names[:2])


def test_stream_0_is_a_stream_and_unknown_is_minus_1(tmp_path):
    unknown = {**kernel(ts=50.0), "pid": "", "tid": "", "args": {}}
    trace = load_events(tmp_path, kernel(stream=0), unknown)
    assert trace.device["stream"].tolist() == [0, -1]
    assert trace.device["device"].tolist() == [0, -1]


def test_unknown_categories_are_counted(tmp_path):
    trace = load_events(tmp_path, op(), op(cat="quantum_op"), op(cat="quantum_op"))
    assert codes(trace)["unknown-category"] == 2
    assert "quantum_op" in trace.problems.set_index("code")["message"]["unknown-category"]


def test_begin_and_end_events_pair_up(tmp_path):
    def mark(ph, ts, name="", tid=1, cat="cpu_op"):
        return {"ph": ph, "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts}

    events = [
        mark("E", 1.0),
        mark("B", 2.0, "outer"),
        mark("B", 3.0, "inner"),
        mark("B", 3.5, "elsewhere", tid=2),
        mark("E", 4.0),
        mark("B", 5.0, "second", cat="user_annotation"),
        mark("E", 6.0),
        mark("E", 7.5),
        mark("B", 9.0, "open"),
        mark("E", 9.5, tid=2),
    ]
    trace = load_events(tmp_path, *events)
    rows = trace.host[["name", "category", "start_ns", "duration_ns"]].values.tolist()
    assert rows == [
        ["outer", "op", 0, 5500],
        ["inner", "op", 1000, 1000],
        ["second", "range", 3000, 1000],
        ["elsewhere", "op", 1500, 6000],
    ]
    assert codes(trace)["unpaired-events"] == 2


def test_argument_texts_have_no_whitespace(tmp_path):
    text = '{"traceEvents": [{"ph":"X","cat":"cpu_op","name":"cat","pid":1,"tid":1,"ts":1,"dur":2,"args":'
    text += '{"Input Dims": [[[8, 768],\n [2, 3]], []], "Input type": ["TensorList", "Scalar"], "Input Strides": null,'
    text += ' "Concrete Inputs": ["", "a b"]}}]}'
    row = load_text(tmp_path, text).host.iloc[0]
    assert row["shapes"] == "[[[8,768],[2,3]],[]]" and row["dtypes"] == '["TensorList","Scalar"]'
    assert row["values"] == '["","a b"]' and row["strides"] == ""


def test_arguments_of_other_types_are_absent(tmp_path):
    trace = load_events(
        tmp_path,
        kernel(registers=1, **{"External id": "12", "grid": "x", "block": [2, 3, 4], "registers per thread": None}),
        kernel(ts=20.0, **{"External id": [1], "correlation": 2**70, "stream": 3}),
    )
    assert trace.device["external_id"].tolist() == [12, -1]
    assert trace.device["correlation"].tolist() == [1, -1]
    assert trace.device["stream"].tolist() == [7, 3]
    assert trace.device["blocks"].tolist() == [-1, -1]
    assert trace.device["threads_per_block"].tolist() == [24, -1]


def test_an_occupancy_of_0_is_unknown(tmp_path):
    shares = {"est. achieved occupancy %": 0}, {"est. achieved occupancy %": 50}
    trace = load_events(tmp_path, op(), *(kernel(ts=20.0 * i, **share) for i, share in enumerate(shares, 1)))
    assert trace.device["occupancy"].isna().tolist() == [True, False]
    assert analyze(trace).kernels["occupancy"].tolist() == [0.5]


def test_graph_ids(tmp_path):
    graphs = [kernel(ts=10.0 * i, **{"graph id": g, "graph node id": 3 * g}) for i, g in enumerate((0, 5))]
    device = load_events(tmp_path, *graphs, kernel(ts=90.0)).device
    assert device["graph"].tolist() == [-1, 5, -1]
    assert device["graph_node"].tolist() == [-1, 15, -1]


def test_threads_have_the_names_of_the_profiler(tmp_path):
    name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0, "args": {"name": "thread 1 (python)"}}
    trace = load_events(tmp_path, op(), op(tid="1"), name)
    assert [trace.metadata.threads[i] for i in trace.host["thread"]] == ["thread 1 (python)", "thread 1"]


def test_capture_info_comes_back(tmp_path):
    info = CaptureInfo(
        version="0.1.0", source="measured", device="cuda", gpu="h200", device_name="NVIDIA H200", dtype="bf16",
        latency=Latency(1.5, 1.0, 2.0, 30), versions={"torch": "2.11.0"},
    )  # fmt: skip
    trace = load_events(tmp_path, op(), tracekit=msgspec.to_builtins(info))
    assert trace.metadata.capture == info and "secrets-in-metadata" not in codes(trace)


def test_metadata_of_other_types_is_a_problem_row(tmp_path):
    trace = load_events(tmp_path, op(), baseTimeNanoseconds="x", deviceProperties={"id": 1}, tracekit={"version": 1})
    assert trace.metadata.base_ns == 10_000 and trace.metadata.devices == () and trace.metadata.capture is None
    assert codes(trace)["unreadable-metadata"] == 3


def test_a_range_of_host_time_that_is_out_of_order_is_a_problem_row(tmp_path):
    info = {"version": "0", "source": "modelled", "device": "model", "host_op_us": 5.0, "host_op_low_us": 8.0}
    trace = load_events(tmp_path, op(), tracekit=info)
    assert trace.metadata.capture is None and codes(trace)["unreadable-metadata"] == 1


SECRET = "hf_" + "aBcDeFgH12345678" * 2


@pytest.mark.parametrize(
    "keys",
    [
        {"env": {"HOME": "/root", "HF_TOKEN": SECRET}},
        {"environment": [SECRET]},
        {"HF_TOKEN": SECRET},
        {"NCCL_DEBUG": "INFO"},
        {"note": f"run with {SECRET}"},
        {"distributedInfo": {"rank": 0, "env": {"A": "b"}}},
        {"api_key": "short"},
        {"blob": "aB3" * 20},
    ],
)
def test_secrets_are_reported_and_never_read(tmp_path, keys):
    for text in ({**keys, "traceEvents": [op()]}, {"traceEvents": [op()], **keys}):
        trace = load_text(tmp_path, json.dumps(text))
        assert codes(trace)["secrets-in-metadata"] == 1
        assert SECRET not in repr(trace.metadata) + trace.problems.to_csv()


def test_usual_metadata_is_no_secret(shared):
    assert "secrets-in-metadata" not in codes(load(shared_trace(shared, "v100_resnet-ddp_float-ts")))


def test_reading_twice_gives_the_same_codes(shared):
    first, second = (load(shared_trace(shared, "mi300_bert-small")) for _ in range(2))
    for column in ("name", "shapes"):
        assert (first.host[column].cat.codes == second.host[column].cat.codes).all()


def test_the_peak_of_the_allocator_is_kept(tmp_path):
    def allocation(total, device):
        args = {"Total Allocated": total, "Device Type": device, "Bytes": 1}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 11.0, "args": args}

    events = [allocation(5_000, 1), allocation(7_000, 1), allocation(9_000, 0), allocation(100, 1)]
    assert load_events(tmp_path, op(), kernel(), *events).metadata.peak_memory_bytes == 7_000
    assert load_events(tmp_path, op(), kernel()).metadata.peak_memory_bytes == 0
