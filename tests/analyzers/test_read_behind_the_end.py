"""What follows the first list of events is reported: more events, more documents, junk, or bytes that are no gzip."""

import gzip
import json

import pytest
from kineto_files import codes, damage, kernel, load_events, load_text, op

from tracekit.analyzers import analyze
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load


def document(*kernels):
    return json.dumps({"schemaVersion": 1, "traceEvents": [op(), *(kernel(k) for k in kernels)]})


def assert_first_only(trace):
    assert trace.device["name"].tolist() == ["k1"]
    return damage(trace)


@pytest.mark.parametrize("between", ["", "\n", " \n\n", ",", "\0"])
def test_a_second_document(tmp_path, between):
    trace = load_text(tmp_path, document("k1") + between + document("k2", "k3"))
    assert assert_first_only(trace) == {"more-events": 3}
    assert "after the end of the first document" in trace.problems["message"].str.cat()


def test_a_second_gzip_member_with_a_document_of_its_own(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(document("k1").encode()) + gzip.compress(document("k2").encode()))
    assert assert_first_only(load(path)) == {"more-events": 2}


def test_a_second_list_of_events(tmp_path):
    second = json.dumps([op(), kernel("k2"), kernel("k3")])
    text = document("k1")[:-1] + f', "traceEvents": {second}, "traceEvents": [{json.dumps(op())}]}}'
    assert assert_first_only(load_text(tmp_path, text)) == {"more-events": 4}


def test_a_bare_array_and_another(tmp_path):
    text = json.dumps([op(), kernel("k1")]) + json.dumps([op(), kernel("k2")])
    assert assert_first_only(load_text(tmp_path, text)) == {"more-events": 2}


@pytest.mark.parametrize("bare", [True, False])
def test_junk_behind_the_end(tmp_path, bare):
    sound = json.dumps([op(), kernel("k1")]) if bare else document("k1")
    assert assert_first_only(load_text(tmp_path, sound + "garbage  \n")) == {"trailing-text": 7}
    assert assert_first_only(load_text(tmp_path, sound + " \n\n")) == {}


def test_a_lot_of_text_behind_the_end(tmp_path, monkeypatch):
    """Beyond what is kept of the metadata, the text is counted as it passes."""
    for name in (
        "tracekit.analyzers.trace.kineto.parallel.HEAD_BYTES",
        "tracekit.analyzers.trace.kineto.chunks.CHUNK_BYTES",
    ):
        monkeypatch.setattr(name, 10_000)
    monkeypatch.setattr("tracekit.analyzers.trace.source._BLOCK_BYTES", 5_000)
    more = [document(*(f"k{i}" for i in range(99)))] * 10
    assert assert_first_only(load_text(tmp_path, document("k1") + "\n".join(more))) == {"more-events": 1000}


def test_bytes_behind_gzip_that_are_no_gzip(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(document("k1").encode()) + b"garbage")
    assert assert_first_only(load(path)) == {"trailing-bytes": 7}
    path.write_bytes(gzip.compress(document("k1").encode()) + bytes(100))
    assert assert_first_only(load(path)) == {}


def test_a_repaired_event_keeps_its_phase(tmp_path):
    """A comma is missing behind the phase, which could also be read as a phase with quotes in it."""
    text = document("k1", "k2", "k3").replace(
        '"ph": "X", "cat": "kernel", "name": "k2"', '"ph": "X" "cat":"kernel", "name":"k2"'
    )
    trace = load_text(tmp_path, text)
    assert trace.device["name"].tolist() == ["k1", "k2", "k3"]
    assert damage(trace) == {"repaired-events": 1}


@pytest.mark.parametrize("phase", [{}, {"ph": "XX"}, {"ph": 5}, {"ph": None}, {"ph": ""}])
def test_an_event_without_a_phase_is_counted(tmp_path, phase):
    broken = {k: v for k, v in kernel("k2").items() if k != "ph"} | phase
    trace = load_events(tmp_path, op(), kernel("k1"), broken)
    assert assert_first_only(trace)["skipped-events"] == 1


@pytest.mark.parametrize("element", ["null", "5", '"text"', "[]", "[1, {}]"])
def test_elements_that_are_no_events_are_counted_and_cost_no_other(tmp_path, element):
    trace = load_text(tmp_path, document("k1").replace("}, {", f"}}, {element}, {{"))
    assert len(trace.host) == 1
    assert assert_first_only(trace)["skipped-events"] == 1


def test_begin_and_end_events_of_a_device_are_counted(tmp_path):
    marks = [{**kernel("k2"), "ph": phase} for phase in "BE"]
    assert codes(load_events(tmp_path, op(), kernel("k1"), *marks))["unknown-category"] == 1


def test_an_occupancy_above_100_percent_is_not_believed(tmp_path):
    shares = {"est. achieved occupancy %": 1234}, {"est. achieved occupancy %": 50}
    trace = load_events(tmp_path, op(), *(kernel(ts=20.0 * i, **share) for i, share in enumerate(shares, 1)))
    assert trace.device["occupancy"].isna().tolist() == [True, False]
    assert damage(trace) == {"impossible-values": 1}


@pytest.mark.parametrize(
    "text", ['},{"ph":' * 300_000, '{"ph":"X","name":"' + "x" * 40_000_000], ids=["pieces", "string"]
)
def test_a_file_that_cannot_be_split_is_refused_at_once(tmp_path, text):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents":[' + text.encode(), 1))
    with pytest.raises(InputError, match="too damaged to be read"):
        load(path)


def test_one_broken_event_in_many_does_not_refuse_the_file(tmp_path):
    events = [json.dumps(op(f"op{i}", ts=float(i))) for i in range(4000)]
    events[::10] = ['{"ph":"X","ts":[}' for _ in events[::10]]
    trace = load_text(tmp_path, f'{{"traceEvents":[{",".join(events)}]}}')
    assert len(trace.host) == 3600
    assert damage(trace) == {"skipped-events": 400}


def test_a_graph_id_of_63_bits_is_left_out(tmp_path):
    trace = load_events(tmp_path, op(), kernel("k1", **{"graph id": 2**63 - 1}), kernel(ts=30.0, **{"graph id": 3}))
    assert trace.device["graph"].tolist() == [-1, 3]
    assert damage(trace) == {"impossible-values": 1}
    analyze(trace)


@pytest.mark.parametrize(("key", "by"), [("traceEvents", "traceEvdnts"), ('"traceEvents"', '\\xa2traceEvents"')])
def test_events_whose_list_has_lost_its_name_are_counted(tmp_path, key, by):
    """The second document is read; the events of the first stand in its way as damaged metadata."""
    trace = load_text(tmp_path, document("k1", "k2").replace(key, by) + "\n" + document("k3"))
    assert trace.device["name"].tolist() == ["k3"]
    assert damage(trace)["skipped-events"] == 3
