"""An annotated trace: the recorded events are unchanged, and viewers show the findings beside them."""

import gzip
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hostile import hostile
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import tracekit
from tracekit.analyzers import analyze as tables_of
from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import load
from tracekit.cli import main
from tracekit.reports.viewer import annotate
from tracekit.reports.viewer.trace_events import Curve, divided, events, layer_spans, stacked, thinned
from tracekit.reports.words import sentences

SAMPLES = Path(__file__).parents[2] / "examples" / "traces"
SAMPLE = SAMPLES / "h200_gpt2_decode.json.gz"
TABLES = ("work", "layers", "layer_types", "ops", "kernels", "phases", "ranges", "gaps", "problems")


def recorded(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    content = json.loads(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw)
    return content if isinstance(content, list) else content["traceEvents"]


def ours(events_: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events_ if str(event.get("cat")).startswith("tracekit")]


def analyze(path: Path) -> Analysis:
    return tracekit.analyze(path)


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("annotated") / "trace.json.gz"
    annotate(SAMPLE, target, analyze(SAMPLE))
    return target


def test_what_was_recorded_is_as_it_was(annotated: Path) -> None:
    events, before = recorded(annotated), recorded(SAMPLE)
    assert events[-len(before) :] == before
    assert ours(events) == events[: -len(before)]


def test_the_analysis_is_the_same(annotated: Path) -> None:
    one, other = analyze(SAMPLE), analyze(annotated)
    for table in TABLES:
        pd.testing.assert_frame_equal(getattr(one, table), getattr(other, table))
    assert (one.source, one.latency, one.bound) == (other.source, other.latency, other.bound)
    assert one.recommendations == other.recommendations


def test_annotating_twice_changes_nothing(annotated: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.json.gz"
    annotate(annotated, again, analyze(annotated))
    assert again.read_bytes() == annotated.read_bytes()
    annotate(again, again, analyze(again))
    assert again.read_bytes() == annotated.read_bytes()
    assert list(tmp_path.iterdir()) == [again]


def test_other_findings_replace_those_of_before(annotated: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.json.gz"
    annotate(annotated, bare, replace(analyze(annotated), recommendations=()))
    assert len(recorded(annotated)) - len(recorded(bare)) == len(analyze(annotated).recommendations) > 0


def test_counters_hold_the_work(annotated: Path) -> None:
    """The area under the curves is the FLOPs and bytes; the roof fraction is that of the kernel that runs."""
    analysis, counters = analyze(annotated), [event for event in ours(recorded(annotated)) if event["ph"] == "C"]
    for name, unit, column, scale in (("arithmetic", "TFLOP/s", "flops", 1e6), ("memory", "GB/s", "bytes", 1e3)):
        curve = [(event["ts"], event["args"][unit]) for event in counters if event["name"] == name]
        area = sum((after[0] - at[0]) * at[1] for at, after in pairwise(curve))
        assert area * scale == pytest.approx(analysis.work[column].sum(), rel=1e-4)
        assert curve[-1][1] == 0
    fractions = {event["args"]["%"] for event in counters if event["name"] == "roof fraction"}
    longest = analysis.work.iloc[int(analysis.work["duration_ns"].argmax())]
    assert float(f"{100 * longest['roof_fraction']:.6g}") in fractions
    queue = [event["args"]["length"] for event in counters if event["name"] == "queue"]
    assert min(queue) == 0 == queue[-1]
    assert Counter(type(event["args"]).__name__ for event in counters) == {"dict": len(counters)}


def test_layers_lie_over_their_kernels(annotated: Path) -> None:
    analysis, events_ = analyze(annotated), recorded(annotated)
    spans = [event for event in ours(events_) if event["ph"] == "X"]
    kernels = [event for event in events_ if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    attention = [span for span in spans if span["name"] == "transformer.h.3.attn"]
    assert len(attention) == 3
    assert {span["args"]["type"] for span in attention} == {"GPT2Attention"}
    of_layer = analysis.layers[analysis.layers["path"] == "transformer.h.3.attn"].iloc[0]
    assert sum(span["args"]["kernels"] for span in attention) == of_layer["kernels"]
    for span in attention:
        inside = [k for k in kernels if span["ts"] <= k["ts"] and k["ts"] + k["dur"] <= span["ts"] + span["dur"] + 1e-3]
        assert len(inside) == span["args"]["kernels"]


def test_recommendations_say_why_and_how(annotated: Path) -> None:
    analysis = analyze(annotated)
    said = [event for event in ours(recorded(annotated)) if event["ph"] == "i"]
    assert len(said) == 1 + len(analysis.recommendations)
    assert said[1]["name"].startswith(f"1. {analysis.recommendations[0].title}: predicted ")
    assert said[1]["args"]["why"] == sentences(analysis.recommendations[0].reason)
    assert len({event["ts"] for event in said}) == len(said)


def compact(analysis: Analysis) -> str:
    import msgspec

    return msgspec.json.encode(list(events(analysis))).decode()


def test_hostile_names_are_data(analysis: Analysis) -> None:
    answer = json.loads(compact(hostile(analysis)))
    names, categories = [event["name"] for event in answer], [event["cat"] for event in answer]
    assert (categories[0], categories[-1]) == ("tracekit findings begin", "tracekit findings end")
    assert categories.count("tracekit findings end") == 1
    assert not any("\u202e" in name or "\x1b" in name for name in names)


@pytest.mark.parametrize("layout", ["bare array", "tail", "spaced", "plain"])
def test_any_layout_of_the_json(layout: str, tmp_path: Path) -> None:
    content = json.loads(gzip.decompress((SAMPLES / "graphs" / "bs_1.json.gz").read_bytes()))
    texts = {
        "bare array": json.dumps(content["traceEvents"]),
        "tail": json.dumps({"traceEvents": content.pop("traceEvents") or [], **content}),
        "spaced": json.dumps(json.loads(gzip.decompress((SAMPLES / "graphs" / "bs_1.json.gz").read_bytes())), indent=1),
    }
    source, target = tmp_path / "in.json", tmp_path / "out.json"
    source.write_text(texts.get(layout, texts["tail"]))
    before = analyze(source)
    annotate(source, target, before)
    assert recorded(target)[-len(recorded(source)) :] == recorded(source)
    pd.testing.assert_frame_equal(before.work, tables_of(load(target)).work)
    again = tmp_path / "again.json"
    annotate(target, again, before)
    assert again.read_bytes() == target.read_bytes()
    kernel = next(event for event in recorded(source) if event.get("cat") == "kernel")
    step = next(event for event in ours(recorded(target)) if event["ph"] == "X")
    assert abs(step["ts"] - kernel["ts"]) < 1e6


def test_times_of_an_epoch_are_exact(tmp_path: Path) -> None:
    """Microseconds since 1970 with three decimals have more digits than a float holds."""
    start = 1_712_195_495_406_752
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 2}
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 1.5, "args": {"correlation": 1}}
    text = json.dumps([launch | {"ts": "@", "args": {"correlation": 1}}, kernel | {"ts": "#"}])
    text = text.replace('"@"', f"{start}.125").replace('"#"', f"{start + 7}.875")
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_text(text)
    annotate(source, target, analyze(source))
    assert f'"name":"queue","pid":9900002,"ts":{start}.125' in target.read_text()


def test_other_formats_are_refused(tmp_path: Path) -> None:
    analysis = replace(analyze(SAMPLE), source=replace(analyze(SAMPLE).source, format="nsys"))
    with pytest.raises(InputError, match="cannot carry findings"):
        annotate(SAMPLE, tmp_path / "out.json.gz", analysis)
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path, annotated: Path) -> None:
    target = tmp_path / "new" / "annotated.json.gz"
    result = CliRunner().invoke(main, ["analyze", str(SAMPLE), "-o", str(target)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert ours(recorded(target))[1:] == ours(recorded(annotated))[1:]
    assert recorded(target)[len(ours(recorded(target))) :] == recorded(SAMPLE)
    result = CliRunner().invoke(main, ["analyze", "-", "-o", str(target)])
    assert "cannot be annotated" in result.stderr


INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=20)


@given(INTERVALS)
def test_a_curve_is_the_sum_of_what_is_open(intervals: list[tuple[int, int, int]]) -> None:
    start, length, rate = (np.array(column) for column in zip(*intervals, strict=True))
    curve = stacked(start, start + length, rate.astype(float))
    for moment in range(75):
        index = np.searchsorted(curve.time_ns, moment, side="right") - 1
        value = curve.value[index] if index >= 0 else 0.0
        assert value == pytest.approx(rate[(start <= moment) & (moment < start + length)].sum())
    ones = stacked(start, start + length, np.ones(len(start)))
    mean = divided(curve, ones)
    assert mean.value.max() <= rate.max() + 1e-9


@given(INTERVALS, st.integers(2, 8))
def test_thinning_keeps_the_area(intervals: list[tuple[int, int, int]], most: int) -> None:
    start, length, rate = (np.array(column) for column in zip(*intervals, strict=True))
    curve = stacked(1000 * start, 1000 * (start + length), rate.astype(float))
    thin = thinned(curve, most)
    assert len(thin.time_ns) <= max(most + 1, len(curve.time_ns) if thin.bin_ns == 0 else 0)

    def area(of: Curve) -> float:
        return float((np.diff(of.time_ns) * of.value[:-1]).sum())

    assert area(thin) == pytest.approx(area(curve), rel=1e-6)


def test_layers_of_streams_at_once_stay_nested() -> None:
    layers = pd.DataFrame({"path": ["", "a", "b"], "parent": [-1, 0, 0], "depth": [0, 1, 1]})
    work = pd.DataFrame({"start_ns": [0, 5, 8, 30], "duration_ns": [10, 10, 4, 5], "layer": [1, 2, 0, -1]})
    spans = layer_spans(work, layers)
    rows = list(zip(spans.layer.tolist(), spans.start_ns.tolist(), spans.end_ns.tolist(), strict=True))
    assert rows == [(0, 0, 15), (1, 0, 5), (2, 5, 8)]
    few = layer_spans(work, layers, most=1)
    assert (few.layer.tolist(), few.deepest) == ([0], 0)
