"""Broken traces: intact events are read, and the others are counted."""

import json

import pytest
from kineto_files import damage, kernel, load_events, load_text, op, shared_text

from tracekit.analyzers.core import InputError

NAMES = [f"op{i}" for i in range(40)]


def trace_text(*replacements):
    """Return forty ops in torch's layout, broken by `replacements` of (old, new) text."""
    events = ",\n  ".join(json.dumps(op(name, ts=i * 10.0)) for i, name in enumerate(NAMES))
    text = '{"schemaVersion": 1, "traceEvents": [\n  ' + events + '\n  ], "traceName": "x"}'
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ('"op7"', '"a"b"', 'a"b'),
        ('"op7"', '"a", "b"', 'a", "b'),
        ('"op7"', '""quoted""', '"quoted"'),
        ('"op7"', r'"C:\data\x"', r"C:\data\x"),
        ('"op7"', '"tail\\"', "tail\\"),
        ('"op7"', '"tab\there"', "tab here"),
        ('"op7"', '"line\nbreak"', "line break"),
        ('"ts": 70.0,', '"ts": 70.0, "extra": NaN,', "op7"),
        ('"ts": 70.0,', '"ts": 70.0, "extra": [-Infinity, 1],', "op7"),
        ('"ts": 70.0, "dur": 5.0, "args": {}', '"ts": 70.0, "dur": 5.0, "args": {},', "op7"),
        ('"ts": 70.0, "dur": 5.0, "args": {}', '"ts": 70.0, "dur": 5.0, "args": {"a": [1, ], }', "op7"),
        ('"op7"', r'"half \ud83d"', "half \\ud83d"),
    ],
)
def test_a_broken_event_is_repaired(tmp_path, old, new, name):
    trace = load_text(tmp_path, trace_text((old, new)))
    assert trace.host["name"].tolist() == [name if n == "op7" else n for n in NAMES]
    assert trace.host["duration_ns"].tolist() == [5000] * 40
    assert damage(trace) == {"repaired-events": 1}


def test_every_event_broken_the_same_way(tmp_path):
    """A module whose name holds a quote breaks every event."""
    trace = load_text(tmp_path, trace_text(('"op', '"o"p')))
    assert trace.host["name"].tolist() == [n.replace("op", 'o"p') for n in NAMES]
    assert damage(trace)["repaired-events"] == 40


def test_bad_utf8_is_replaced(tmp_path):
    trace = load_text(tmp_path, trace_text().encode().replace(b'"op7"', b'"o\xffp"'))
    assert trace.host["name"].tolist()[7] == "o\ufffdp" and len(trace.host) == 40
    assert damage(trace) == {"bad-utf8": 1}


def test_beyond_repair_is_skipped(tmp_path):
    trace = load_text(tmp_path, trace_text(('"op7"', '{"a": [1}')))
    assert trace.host["name"].tolist() == [n for n in NAMES if n != "op7"]
    assert damage(trace) == {"skipped-events": 1}


def test_a_damaged_first_key_costs_no_event_but_its_own(tmp_path):
    events = trace_text().split(",\n  ")
    events[7] = events[7].replace('{"', '{"\\ud83d', 1)
    trace = load_text(tmp_path, ",\n  ".join(events))
    assert set(trace.host["name"]) >= {n for n in NAMES if n != "op7"}
    assert len(trace.host) + damage(trace).get("skipped-events", 0) == len(NAMES)


def test_the_last_event_broken_before_the_end(tmp_path):
    trace = load_text(tmp_path, trace_text(('"op39"', '"a"b"')))
    assert trace.host["name"].tolist() == [*NAMES[:-1], 'a"b']
    assert damage(trace) == {"repaired-events": 1}


def test_the_last_event_broken_and_with_objects_inside(tmp_path):
    inside = '"args": {"list": [{"a": 1}], "more": 2}'
    trace = load_text(tmp_path, trace_text(('"op39"', '"a"b"'), ('"args": {}', inside)))
    assert trace.host["name"].tolist() == [*NAMES[:-1], 'a"b'] and damage(trace) == {"repaired-events": 1}


def test_a_trailing_comma_in_the_list(tmp_path):
    trace = load_text(tmp_path, trace_text(("\n  ],", ",\n  ],")))
    assert len(trace.host) == 40 and damage(trace) == {}


def test_fields_of_other_types(tmp_path):
    trace = load_text(tmp_path, trace_text(('"ts": 70.0, "dur": 5.0', '"ts": "70.5", "dur": "2.5"')))
    assert trace.host.loc[7, ["start_ns", "duration_ns"]].tolist() == [70_500, 2500]


@pytest.mark.parametrize("percent", range(0, 100, 7))
@pytest.mark.parametrize("name", ["h100_bert-small", "mi300_torch-compile"])
def test_cut_off_anywhere(shared, tmp_path, name, percent):
    raw = shared_text(shared, name)
    whole = json.loads(raw)["traceEvents"]
    cut = raw[: len(raw) * percent // 100]
    kinds = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "overhead"}
    expected, read_to = 0, cut.count(b'"ph":')
    for event in whole[: max(read_to - 1, 0)]:
        module = event.get("cat") == "python_function" and event["name"].startswith("nn.Module: ")
        expected += module or event.get("cat") in kinds
    if not expected:
        with pytest.raises(InputError):
            load_text(tmp_path, cut)
        return
    trace = load_text(tmp_path, cut)
    calls = trace.host[trace.host.category != "python"]  # of Python's calls only the long ones are kept
    assert expected <= len(calls) <= expected + 1
    assert damage(trace)["truncated"] == 1


def test_cut_off_in_the_metadata_behind_the_events(tmp_path):
    text = json.dumps({"traceEvents": [op()], "baseTimeNanoseconds": 5, "deviceProperties": [{"id": 0}]})
    trace = load_text(tmp_path, text[:-5])
    assert trace.metadata.base_ns == 10_005 and damage(trace)["truncated"] == 1


def test_negative_and_missing_durations_are_0(tmp_path):
    missing = {k: v for k, v in op(ts=30.0).items() if k != "dur"}
    trace = load_events(tmp_path, op(), op(ts=20.0, dur=-3.0), missing, op(ts=40.0, dur=None), kernel(ts=50.0, dur=-1))
    assert trace.host["duration_ns"].tolist() == [5000, 0, 0, 0]
    assert trace.device["duration_ns"].tolist() == [0]
    assert damage(trace) == {"negative-duration": 2, "missing-duration": 2}


def test_a_duration_past_the_end_of_later_work_is_capped(tmp_path):
    trace = load_events(
        tmp_path,
        op(dur=500.0),
        kernel("overflows", ts=10.0, dur=100.0),
        kernel("next", ts=20.0, dur=5.0, correlation=2),
        kernel("overlaps", ts=30.0, dur=7.0, correlation=3),
        kernel("dependent launch", ts=36.0, dur=4.0, correlation=4),
        kernel("other stream", ts=12.0, dur=50.0, stream=8, correlation=5),
    )
    rows = dict(zip(trace.device["name"], trace.device["duration_ns"], strict=True))
    assert rows == {
        "overflows": 10_000,
        "next": 5000,
        "overlaps": 7000,
        "dependent launch": 4000,
        "other stream": 50_000,
    }
    assert damage(trace) == {"capped-duration": 1}


def test_two_overflowing_durations_in_a_row_are_both_capped(tmp_path):
    kernels = [kernel(ts=t, dur=d, correlation=int(t)) for t, d in ((10.0, 7e15), (20.0, 900.0), (30.0, 1.0))]
    trace = load_events(tmp_path, op(dur=500.0), *kernels)
    assert trace.device["duration_ns"].tolist() == [10_000, 10_000, 1000]
    assert damage(trace)["capped-duration"] == 2


def test_centuries_end_with_the_trace(tmp_path):
    """236 years, as CUPTI has written, on the last kernel and on a range."""
    century = 7_447_540_000_000_000.0
    trace = load_events(
        tmp_path, op(ts=10.0, dur=90.0), op("range", ts=11.0, dur=century), kernel(ts=40.0, dur=century)
    )
    assert trace.device["duration_ns"].tolist() == [60_000]
    assert trace.host["duration_ns"].tolist() == [90_000, 89_000]
    assert damage(trace)["capped-duration"] == 2


def test_long_work_at_the_end_is_kept(tmp_path):
    trace = load_events(tmp_path, op(), kernel(ts=12.0, dur=30e6))
    assert trace.device["duration_ns"].tolist() == [30_000_000_000] and "capped-duration" not in damage(trace)


def test_kernels_of_one_graph_launch_may_run_at_the_same_time(tmp_path):
    kernels = [kernel(ts=10.0, dur=50.0), kernel(ts=12.0, dur=5.0), kernel(ts=13.0, dur=9.0)]
    trace = load_events(tmp_path, op(dur=500.0), *kernels)
    assert trace.device["duration_ns"].tolist() == [50_000, 5000, 9000]


def test_an_overflow_in_a_real_trace(shared, tmp_path):
    """One of 3,774 durations, written as a hundred times too long, is capped, and no other changes."""
    raw = json.loads(shared_text(shared, "a100_resnet-ddp_nccl"))
    kernels = sorted((e for e in raw["traceEvents"] if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    sound = load_text(tmp_path, json.dumps(raw)).device
    victim = kernels[len(kernels) // 2]
    victim["dur"] *= 10_000
    trace = load_text(tmp_path, json.dumps(raw))
    changed = trace.device.index[trace.device["duration_ns"] != sound["duration_ns"]]
    assert damage(trace)["capped-duration"] == len(changed) == 1
    row = trace.device.loc[changed[0]]
    later = sound[(sound["stream"] == row["stream"]) & (sound["start_ns"] > row["start_ns"])]
    assert row["start_ns"] + row["duration_ns"] == later["start_ns"].min()


@pytest.mark.parametrize("ts", [0, None, "soon", 1e300, -1e30, [1]])
def test_events_at_impossible_times_are_left_out(tmp_path, ts):
    events = [op(ts=4e12 + i) for i in range(5)]
    trace = load_events(tmp_path, *events, op("lost", ts=ts), baseTimeNanoseconds=7)
    assert len(trace.host) == 5 and trace.metadata.base_ns == 4 * 10**15 + 7
    assert damage(trace)["implausible-time"] == 1


def test_nanoseconds_that_no_double_holds(tmp_path):
    """Absolute microseconds with nanosecond digits, as torch 2.3 wrote them."""
    starts = ["1712195495406752.001", "1712195495406752.037", "1712195495406752.999", "1712195495406753.000"]
    events = ",".join(f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{t},"dur":0.004}}' for t in starts)
    trace = load_text(tmp_path, '{"traceEvents":[' + events + "]}")
    assert trace.metadata.base_ns == 1712195495406752001
    assert trace.host["start_ns"].tolist() == [0, 36, 998, 999]
    assert trace.host["duration_ns"].tolist() == [4] * 4


def test_events_that_meet_do_not_overlap(tmp_path):
    """ts + dur of floats overlaps the next ts by 0.1 ns here; integers do not."""
    first, second = kernel(ts=4355131102587.868, dur=2.464), kernel(ts=4355131102590.332, dur=1.0, correlation=2)
    device = load_events(tmp_path, first, second).device
    assert device["start_ns"].tolist() == [0, 2464] and device["duration_ns"].tolist() == [2464, 1000]
