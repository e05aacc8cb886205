"""Exports of Nsight Systems whose tables, columns and ids are as different versions write them."""

import gzip
import io
import json
import sqlite3
import sys

import pandas as pd
import pytest
from nsys_files import DOMAIN, GRAPH_TRACE, KERNEL, MEMCPY, MEMSET, NVTX, RUNTIME, START_END, Export, gid

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute.host_spans import project
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import DeviceProperties, load
from tracekit.analyzers.trace.nsys import database
from tracekit.analyzers.trace.ranges import module, phase, step


def codes(trace):
    return dict(zip(trace.problems["code"], trace.problems["count"], strict=True))


def rows(table, *columns):
    return list(zip(*(table[column].tolist() for column in columns), strict=True))


def test_kernels_calls_and_ranges(tmp_path):
    made = Export().range("outer", 100, 200).launched("gemm", 110, 300, 340, 5)
    made.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_000_000)
    trace = made.load(tmp_path)
    assert trace.metadata.format == "nsys" and trace.metadata.base_ns == 1_000_100
    assert trace.metadata.threads == ("thread 7",)
    columns = ("start_ns", "duration_ns", "thread", "category", "name", "correlation")
    assert rows(trace.host, *columns) == [
        (0, 100, 0, "range", "outer", -1),
        (10, 10, 0, "runtime", "cudaLaunchKernel", 5),
    ]
    columns = ("start_ns", "duration_ns", "device", "stream", "category", "name", "correlation", "graph")
    assert rows(trace.device, *columns) == [(200, 40, 0, 7, "kernel", "gemm", 5, -1)]
    assert codes(trace) == {}


def test_sizes_of_kernels(tmp_path):
    grid = {"gridX": 2, "gridY": 3, "gridZ": 4, "blockX": 32, "blockY": 2, "blockZ": 1}
    memory = {"registersPerThread": 40, "staticSharedMemory": 100, "dynamicSharedMemory": 28}
    made = Export().kernel("full", 10, 20, 1, **grid, **memory).kernel("bare", 30, 40, 2, blockX=0)
    device = made.load(tmp_path).device
    columns = ("name", "blocks", "threads_per_block", "registers", "shared_memory_bytes")
    assert rows(device, *columns) == [("full", 24, 64, 40, 128), ("bare", -1, -1, -1, -1)]


def test_copies_and_sets_are_named_as_torch_names_them(tmp_path):
    made = Export().row(MEMCPY, start=1, end=3, bytes=64, copyKind=1, srcKind=1, dstKind=2)
    made.row(MEMCPY, start=5, end=6, bytes=8, copyKind=10).row(MEMSET, start=7, end=9, bytes=4, memKind=2)
    assert rows(made.load(tmp_path).device, "category", "name", "bytes", "duration_ns") == [
        ("memcpy", "Memcpy HtoD (Pinned -> Device)", 64, 2),
        ("memcpy", "Memcpy PtoP", 8, 1),
        ("memset", "Memset (Device)", 4, 2),
    ]


def test_text_and_text_id(tmp_path):
    made = Export()
    made.range("plain", 10, 20).range(None, 30, 40, textId=made.string("registered"))
    assert made.load(tmp_path).host["name"].tolist() == ["plain", "registered"]


def test_only_text_ids(tmp_path):
    made = Export()
    made.row(NVTX, start=1, end=2, eventType=59, globalTid=gid(7, 7), textId=made.string("registered"))
    assert made.load(tmp_path).host["name"].tolist() == ["registered"]


def test_domains_prefix_their_ranges(tmp_path):
    made = Export().row(NVTX, start=1, eventType=DOMAIN, text="NCCL", domainId=3, globalTid=gid(7, 7))
    made.row(NVTX, start=1, eventType=DOMAIN, text="other process's", domainId=3, globalTid=gid(8, 8))
    made.range("ncclAllReduce", 10, 20, domainId=3).range("mine", 30, 40).range("unknown", 50, 60, domainId=9)
    assert made.load(tmp_path).host["name"].tolist() == ["NCCL:ncclAllReduce", "mine", "unknown"]


def test_marks_are_no_ranges_and_start_end_ranges_are(tmp_path):
    made = Export().range("mark", 5, None, eventType=34).range("span", 10, 90, eventType=START_END)
    assert made.load(tmp_path).host["name"].tolist() == ["span"]


def test_correlations_repeat_across_processes(tmp_path):
    made = Export()
    for pid, name in ((7, "a"), (8, "b")):
        made.launched(name, pid * 100, pid * 100 + 50, pid * 100 + 60, 5, pid=pid, tid=pid)
    trace = made.load(tmp_path)
    assert trace.metadata.threads == ("process 7, thread 7", "process 8, thread 8")
    assert trace.device["correlation"].nunique() == 2
    work = analyze(trace).work
    launches = trace.host.iloc[work["launch"]]
    assert list(zip(work["name"], launches["thread"], strict=True)) == [("a", 0), ("b", 1)]
    assert "duplicate-correlations" not in codes(trace)


def test_ranks_step_together(tmp_path):
    made = Export()
    for rank in (0, 1):
        ids = {"pid": 7 + rank, "tid": 7 + rank}
        for i in (0, 1):
            at = 1000 * i + 50 * rank
            made.range(step(i), at, at + 600, **ids).launched("k", at + 10, at + 100, at + 300, i, deviceId=rank, **ids)
    analysis = analyze(made.load(tmp_path))
    assert rows(analysis.timeline.steps, "start_ns", "wall_ns", "busy_ns", "kernels") == [
        (0, 600, 400, 2),
        (1000, 600, 400, 2),
    ]
    assert analysis.work["step"].tolist() == [0, 0, 1, 1]


def test_sequence_numbers_repeat_across_processes(tmp_path):
    made = Export()
    for pid in (7, 8):
        made.range("aten::linear, seq = 3", pid * 100, pid * 100 + 9, pid=pid, tid=pid)
    assert made.load(tmp_path).host["sequence"].nunique() == 2


def test_a_correlation_on_two_threads_is_reported_and_a_call_inside_itself_is_not(tmp_path):
    made = Export().launched("k", 10, 50, 60, 5).call("cudaLaunchKernel", 12, 18, 5)
    assert codes(made.load(tmp_path)) == {}
    (tmp_path / "report.sqlite").unlink()
    assert codes(made.call("cudaLaunchKernel", 80, 85, 5, tid=9).load(tmp_path)) == {"duplicate-correlations": 1}


def test_kernels_without_their_calls_stay(tmp_path):
    analysis = analyze(Export().launched("a", 10, 50, 60, 5).kernel("orphan", 70, 90, 6).load(tmp_path))
    assert rows(analysis.work, "name", "busy_ns", "launch") == [("a", 10, 0), ("orphan", 20, -1)]


def test_graphs_traced_as_a_whole_are_busy_time(tmp_path):
    where = {"deviceId": 0, "streamId": 7, "globalPid": gid(7)}
    made = Export().range("decode", 0, 100).call("cudaGraphLaunch_v10000", 10, 20, 5)
    made.row(GRAPH_TRACE, start=50, end=80, graphId=3, correlationId=5, **where)
    trace = made.load(tmp_path)
    assert codes(trace) == {"graphs-as-a-whole": 1}
    assert rows(trace.device, "name", "category", "graph") == [("CUDA graph 3", "kernel", 3)]
    analysis = analyze(trace)
    assert analysis.timeline.busy_ns == 30
    assert rows(analysis.layers, "path", "self_busy_ns") == [("decode", 30)]


def test_kernels_of_graphs_by_graph_or_by_node(tmp_path):
    made = Export().kernel("a", 1, 2, 1, graphNodeId=(4 << 32) + 2).kernel("b", 3, 4, 1, graphNodeId=None)
    assert made.load(tmp_path).device["graph"].tolist() == [4, -1]
    (tmp_path / "report.sqlite").unlink()
    made.kernel("c", 5, 6, 2, graphId=9, graphNodeId=1).kernel("d", 7, 8, 2, graphId=0)
    assert made.load(tmp_path).device["graph"].tolist() == [4, -1, 9, -1]


def test_a_window_of_a_run(tmp_path):
    """Ranges that had not ended when recording stopped end there."""
    trace = Export().range(step(0), 100, None).launched("k", 110, 150, 250, 5).load(tmp_path)
    assert codes(trace) == {"unended-ranges": 1}
    assert rows(trace.host, "name", "duration_ns")[0] == ("step: 0", 150)
    assert analyze(trace).timeline.steps["wall_ns"].tolist() == [150]


def test_gpus_and_their_numbers(tmp_path):
    gpu = {"smCount": 132, "totalMemory": 80 << 30, "computeMajor": 9, "computeMinor": 0}
    made = Export().kernel("a", 10, 20, 1, pid=7).kernel("b", 15, 35, 1, pid=8)
    for number in (0, 1):
        made.row("TARGET_INFO_GPU", id=number, name="NVIDIA H100 80GB HBM3", **gpu)
        made.row("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=0, pid=7 + number)
    trace = made.load(tmp_path)
    assert trace.metadata.devices[1] == DeviceProperties(1, "NVIDIA H100 80GB HBM3", 132, (9, 0), 80 << 30)
    analysis = analyze(trace)
    assert analysis.source.gpu.id == "h100-sxm"
    assert rows(analysis.work, "name", "device", "busy_ns") == [("a", 0, 10), ("b", 1, 20)]
    assert analysis.timeline.busy_ns == 30


def test_ops_of_emit_nvtx(tmp_path):
    made = Export().range("aten::addmm, seq = 3, op_id = 12, sizes = [[8], [2, 4], [4, 8], []]", 10, 30)
    made.range("aten::view", 40, 50).range("Linear, op_id = 13", 60, 70).range("a, b", 80, 90)
    host = made.load(tmp_path).host
    assert rows(host, "category", "name", "sequence", "external_id", "shapes", "dtypes") == [
        ("op", "aten::addmm", 3, 12, "[[8],[2,4],[4,8],[]]", ""),
        ("op", "aten::view", -1, -1, "", ""),
        ("range", "Linear", -1, 13, "", ""),
        ("range", "a, b", -1, -1, "", ""),
    ]


def as_torch_trace(names):
    """Return the same ranges as a trace of torch.profiler; starts and ends are in us, and kernels take 10 us."""
    ids = {"pid": 1, "tid": 1, "ph": "X"}
    host = [{**ids, "cat": "user_annotation", "name": n, "ts": a, "dur": b - a} for n, a, b in names]
    call = {**ids, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1}
    calls = [{**call, "ts": a + 1, "args": {"correlation": i}} for i, (_, a, _) in enumerate(names, 1)]
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 10}
    where = {"device": 0, "stream": 7}
    work = [{**kernel, "ts": 1000 + 20 * i, "args": {**where, "correlation": i}} for i in range(1, len(names) + 1)]
    return json.dumps({"traceEvents": [*host, *calls, *work]})


def test_tracekit_ranges_give_the_layers_of_a_torch_trace(tmp_path):
    names = [(step(0), 0, 900), (phase("prefill"), 10, 800), (module("", "Net"), 20, 700)]
    names += [(module("h.0", "Block"), 30, 400), (module("h.0.attn", "Attention"), 40, 200)]
    names += [(module("h.1", "Block"), 500, 600)]
    made = Export()
    for i, (name, start, end) in enumerate(names, 1):
        made.range(name, start * 1000, end * 1000)
        made.call("cudaLaunchKernel_v7000", start * 1000 + 1000, start * 1000 + 2000, i)
        made.kernel("k", 1_000_000 + 20_000 * i, 1_010_000 + 20_000 * i, i)
    (tmp_path / "torch.json").write_text(as_torch_trace(names))
    ours, torchs = analyze(made.load(tmp_path)), analyze(load(tmp_path / "torch.json"))
    assert ours.layers.path.tolist() == ["(model)", "h.0", "h.0.attn", "h.1", "(no layer)"]
    for table in ("layers", "layer_types", "phases"):
        pd.testing.assert_frame_equal(getattr(ours, table), getattr(torchs, table))


def test_ranges_written_by_emit_nvtx_are_layers_too(tmp_path):
    made = Export().range(module("h.0", "Block") + ", op_id = 5", 0, 100).launched("k", 10, 50, 60, 5)
    assert analyze(made.load(tmp_path)).layers.path.tolist() == ["h.0"]


def test_backward_ops_of_emit_nvtx_find_their_layer(tmp_path):
    made = Export().range(module("h.0", "Block"), 0, 100).range("aten::addmm, seq = 3, op_id = 2", 10, 50)
    made.range("autograd::engine::evaluate_function: AddmmBackward0, seq = 3, op_id = 9", 200, 300, tid=8)
    made.range("aten::mm, op_id = 10", 210, 250, tid=8).launched("k", 220, 400, 450, 5, tid=8)
    analysis = analyze(made.load(tmp_path))
    assert rows(analysis.layers, "path", "self_busy_ns") == [("h.0", 50)]
    assert analysis.ops.iloc[0][["name", "busy_ns"]].tolist() == ["aten::mm", 50]


def test_libraries_name_no_layers(tmp_path):
    made = Export().row(NVTX, start=1, eventType=DOMAIN, text="NCCL", domainId=3, globalTid=gid(7, 7))
    made.range("ncclAllReduce", 10, 60, domainId=3).launched("k", 20, 80, 90, 1)
    assert analyze(made.load(tmp_path)).source.layers_from == "none"


def test_overlapping_ranges_each_hold_what_they_contain(tmp_path):
    """Start/end ranges need not nest: both hold the call in their common part."""
    made = Export().range("a", 0, 100, eventType=START_END).range("b", 50, 200, eventType=START_END)
    made.launched("k", 60, 300, 310, 1).launched("l", 150, 320, 350, 2).launched("m", 195, 400, 410, 3)
    trace = made.load(tmp_path)
    table = project(trace.host, analyze(trace).work)
    names = trace.host["name"].astype(str).to_numpy()[table["row"]]
    assert list(zip(names, *(table[c] for c in ("start_ns", "duration_ns", "items", "level")), strict=True)) == [
        ("a", 300, 10, 1, 0),
        ("b", 300, 50, 2, 0),
    ]


def test_metrics_and_environments_are_not_read(tmp_path):
    made = Export().kernel("k", 10, 20, 1).row("GPU_METRICS", timestamp=5, value=50)
    for name in ("PROCESS_0:ENVIRONMENT_VARIABLE", "RATE_HZ"):
        made.row("META_DATA_CAPTURE", name=name, value='HF_TOKEN="hf_abcdefghijklmnopqrstuvwxyz"')
    trace = made.load(tmp_path)
    assert codes(trace) == {"unused-gpu-metrics": 1, "secrets-in-metadata": 1, "no-host-events": 1}
    assert "hf_" not in repr(trace.metadata) + trace.problems.to_string()


def test_gzipped_and_from_stdin(tmp_path, monkeypatch):
    export = Export().kernel("k", 10, 20, 1).write(tmp_path / "report.sqlite").read_bytes()
    (tmp_path / "packed").write_bytes(gzip.compress(export))
    assert load(tmp_path / "packed").device["name"].tolist() == ["k"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(export)))
    assert load("-").device["name"].tolist() == ["k"]


def test_other_databases_are_refused(tmp_path):
    path = tmp_path / "places.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    connection.close()
    with pytest.raises(InputError, match="not an export of Nsight Systems"):
        load(path)


def changed(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return load(path)


def sound(folder):
    return Export().launched("k", 10, 20, 30, 1).range("r", 5, 50).write(folder / "report.sqlite")


def test_a_view_in_the_place_of_a_table_is_read(tmp_path):
    statements = (f"ALTER TABLE {KERNEL} RENAME TO hidden", f"CREATE VIEW {KERNEL} AS SELECT * FROM hidden")
    trace = changed(sound(tmp_path), *statements)
    assert trace.device["name"].tolist() == ["k"] and codes(trace) == {}


def test_a_view_that_never_ends_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "_LEAST_STEPS", 1 << 22)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    columns = 'SELECT i AS start, i AS "end", 0 AS nameId FROM n'
    trace = changed(
        sound(tmp_path), f"DROP TABLE {RUNTIME}", f"CREATE VIEW {RUNTIME} AS {endless} {columns} WHERE i < 0"
    )
    assert trace.device["name"].tolist() == ["k"] and codes(trace)["truncated"] == 1


def test_a_view_of_what_is_missing_is_a_lost_table(tmp_path):
    trace = changed(sound(tmp_path), f"DROP TABLE {KERNEL}", f"CREATE VIEW {KERNEL} AS SELECT * FROM absent")
    assert codes(trace) == {"unread-table": 1, "no-device-events": 1}


def test_generated_columns_and_names_in_other_cases_are_read(tmp_path):
    path = sound(tmp_path)
    statements = (
        f'ALTER TABLE {KERNEL} RENAME COLUMN "end" TO stop',
        f'ALTER TABLE {KERNEL} ADD COLUMN "End" GENERATED ALWAYS AS (stop)',
        f"ALTER TABLE {KERNEL} RENAME COLUMN start TO START",
        f"ALTER TABLE {RUNTIME} RENAME TO x",
        f"ALTER TABLE x RENAME TO {RUNTIME.lower()}",
    )
    trace = changed(path, *statements)
    assert trace.device["duration_ns"].tolist() == [10] and len(trace.host) == 2 and codes(trace) == {}


@pytest.mark.parametrize(
    ("table", "column"),
    [(KERNEL, "start"), (KERNEL, "end"), (RUNTIME, "nameId"), (NVTX, "eventType"), (NVTX, "globalTid")],
)
def test_a_table_that_lacks_a_column_is_reported_with_its_rows(tmp_path, table, column):
    trace = changed(sound(tmp_path), f'ALTER TABLE {table} RENAME COLUMN "{column}" TO other')
    assert codes(trace)["unread-table"] == 1
    message = trace.problems.set_index("code")["message"]["unread-table"]
    assert table in message and column in message


_USED = [
    *((KERNEL, name) for name in ("deviceId", "streamId", "correlationId", "globalPid", "demangledName", "gridX")),
    *((RUNTIME, name) for name in ("globalTid", "correlationId")),
    *((NVTX, name) for name in ("text", "textId", "domainId", "end")),
]


@pytest.mark.parametrize(("table", "column"), _USED)
def test_a_used_column_that_is_missing_is_reported(tmp_path, table, column):
    trace = changed(sound(tmp_path), f'ALTER TABLE {table} RENAME COLUMN "{column}" TO other')
    message = trace.problems.set_index("code")["message"]["lacking-columns"]
    assert message == f"The report lacks 1 column: {table}.{column}."


@pytest.mark.parametrize(("table", "column"), [*_USED, (KERNEL, "start"), (NVTX, "eventType"), ("StringIds", "value")])
def test_values_of_another_type_are_reported(tmp_path, table, column):
    wrong = "x'7a'" if column in ("text", "value") else "7.5"
    trace = changed(sound(tmp_path), f'UPDATE {table} SET "{column}" = {wrong}')
    found = trace.problems.set_index("code").loc["mistyped-values"]
    assert f"{table}.{column}" in found["message"]
    assert found["count"] == (2 if table == "StringIds" else 1)


@pytest.mark.parametrize("end", [-(2**63), 2**63 - 1])
def test_times_at_the_ends_of_int64_are_left_out(tmp_path, end):
    """The difference of such a start and an end would overflow."""
    trace = changed(sound(tmp_path), f"UPDATE {KERNEL} SET start = {end}", f'UPDATE {KERNEL} SET "end" = {-end - 1}')
    assert trace.device.empty and codes(trace)["implausible-time"] == 1


@pytest.mark.parametrize("column", ["id", "value"])
def test_strings_that_are_lost_are_reported(tmp_path, column):
    trace = changed(sound(tmp_path), f"ALTER TABLE StringIds RENAME COLUMN {column} TO other")
    assert codes(trace) == {"unread-table": 2, "unnamed-events": 2}


def test_ranges_of_no_known_type_are_counted(tmp_path):
    assert codes(changed(sound(tmp_path), f"UPDATE {NVTX} SET eventType = NULL"))["skipped-events"] == 1


def test_other_activities_are_counted(tmp_path):
    made = Export().kernel("k", 10, 20, 1).row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=1, end=2)
    assert codes(made.load(tmp_path)) == {"unused-activity": 1, "no-host-events": 1}


def test_a_report_without_work_says_how_to_record(tmp_path):
    with pytest.raises(InputError, match="nothing to analyze") as error:
        Export().row(KERNEL, start=None, end=None).load(tmp_path)
    assert "-t cuda,nvtx" in error.value.hint
