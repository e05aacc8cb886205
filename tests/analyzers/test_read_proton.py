"""Profiles of Triton's Proton: trees and timelines, whole, cut off and damaged."""

import gzip
import json
from pathlib import Path

import pytest
from kineto_files import codes, damage
from proton_files import event, kernel, scope, timeline, tree

from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load, proton
from tracekit.analyzers.trace.kineto import reader

STEPS = range(3)


SAMPLES = Path(__file__).parents[2] / "examples/proton"
"""Recorded on an H100 with Triton 3.6."""


def kernels_of(path):
    """Name, number and time of the kernels in a sample, by a plain parser."""
    text = gzip.decompress(path.read_bytes()).decode()
    sums = {}
    if ".hatchet" in path.name:
        pending = [json.loads(text)[0]]
        while pending:
            node = pending.pop()
            pending += node["children"]
            if node["metrics"].get("count"):
                number, time = sums.get(node["frame"]["name"], (0, 0))
                metrics = node["metrics"]
                sums[node["frame"]["name"]] = (number + metrics["count"], time + metrics["time (ns)"])
    else:
        for each in (one for line in text.splitlines() for one in json.loads(line)["traceEvents"]):
            number, time = sums.get(each["name"], (0, 0))
            sums[each["name"]] = (number + 1, time + round(each["dur"] * 1000))
    return sums


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("h100_*")), ids=lambda path: path.name)
def test_samples_keep_their_kernels_times_and_scopes(path):
    trace = load(path)
    table = trace.device.astype({"name": object}).groupby("name")["duration_ns"].agg(["size", "sum"])
    assert {name: (row["size"], row["sum"]) for name, row in table.iterrows()} == kernels_of(path)
    analysis = analyze(trace)
    assert analysis.coverage.layer == pytest.approx(1.0)
    types = set(analysis.layers["type"])
    assert types >= {"attention", "mlp"} or "python" in path.name
    assert "<captured_at>" not in types
    assert len(analysis.timeline.steps) == (3 if "shadow_eager" in path.name else 1)


def write(folder, data, name="profile.hatchet"):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.fixture
def whole_tree():
    parts = [scope("attention", kernel("add", 1001, 2), kernel("mm", 4000)), scope("mlp", kernel("scale", 500))]
    return tree(*(scope(f"step_{step}", *parts, tokens=1024) for step in STEPS))


@pytest.fixture
def whole_timeline():
    events = []
    for step in STEPS:
        at = 10_000 * step
        events += [
            event("add", at, 1000, f"step_{step}", "attention"),
            event("mm", at + 1200, 4000, f"step_{step}", "attention"),
            event("scale", at + 6000, 500, f"step_{step}", "mlp"),
            event("copy", at + 500, 3000, f"step_{step}", stream=9),
        ]
    return timeline(*events)


def by_layer(trace):
    layers = analyze(trace).layers
    return {path: own for path, own in zip(layers["path"], layers["self_duration_ns"], strict=True) if path}


def test_a_tree_is_laid_end_to_end(tmp_path, whole_tree):
    trace = load(write(tmp_path, whole_tree))
    assert trace.device["name"].tolist() == ["add", "add", "mm", "scale"] * 3
    assert trace.device["duration_ns"].tolist() == [500, 501, 4000, 500] * 3
    assert (trace.device["start_ns"].diff()[1:] == trace.device["duration_ns"].shift()[1:]).all()
    assert trace.metadata.devices[0].compute_capability == (9, 0)
    assert damage(trace) == {"summed-launches": 12}
    assert by_layer(trace) == {"attention": 15_003, "mlp": 1_500}
    assert analyze(trace).timeline.steps["step"].tolist() == [0, 1, 2]


def test_a_timeline_keeps_its_times(tmp_path, whole_timeline):
    trace = load(write(tmp_path, whole_timeline, "profile.chrome_trace"))
    first = trace.device.head(4)
    assert first["name"].tolist() == ["add", "copy", "mm", "scale"]
    assert first["start_ns"].tolist() == [0, 500, 1200, 6000]
    assert first["stream"].tolist() == [7, 9, 7, 7]
    analysis = analyze(trace)
    assert by_layer(trace) == {"attention": 15_000, "mlp": 1_500, "(no layer)": 9_000}
    assert len(analysis.timeline.steps) == 3
    assert damage(trace) == {}


def test_a_kernel_that_ran_often_is_known_by_its_sum(tmp_path):
    trace = load(write(tmp_path, tree(scope("layer", kernel("k", 10**9, 10**6)))))
    assert trace.device["duration_ns"].sum() == 10**9
    assert len(trace.device) == 1000


def test_what_is_behind_a_cut_is_lost_and_nothing_before_it(tmp_path, whole_tree, whole_timeline):
    for data in (whole_tree, whole_timeline):
        seen = []
        for percent in range(5, 100, 5):
            try:
                trace = load(write(tmp_path, data[: len(data) * percent // 100]))
            except InputError as error:
                assert error.why and error.hint
                continue
            assert codes(trace)["truncated"] == 1, percent
            seen.append(len(trace.device))
        assert seen == sorted(seen)
        assert seen[-1] >= 8


def test_gzip_and_damage(tmp_path, whole_tree, whole_timeline):
    assert len(load(write(tmp_path, gzip.compress(whole_tree))).device) == 12
    trace = load(write(tmp_path, whole_timeline.replace(b'"ts":1.2}', b'"ts":-5}')))
    assert (len(trace.device), codes(trace)["skipped-events"]) == (11, 1)
    trace = load(write(tmp_path, whole_tree.replace(b'"time (ns)":4000', b'"time (ns)":"x"', 1)))
    assert (len(trace.device), codes(trace)["skipped-events"]) == (11, 1)


def test_a_small_profile_that_becomes_large_is_refused(tmp_path, whole_tree, whole_timeline, monkeypatch):
    monkeypatch.setenv("TRACEKIT_LIMIT_DOCUMENT", str(1 << 20))
    for whole in (whole_tree, whole_timeline):
        bomb = gzip.compress(whole + b" " * (1 << 21))
        with pytest.raises(InputError, match=r"more than 1,048,576 bytes.*TRACEKIT_LIMIT_DOCUMENT"):
            load(write(tmp_path, bomb))


def test_profiles_without_kernels_and_other_json(tmp_path):
    with pytest.raises(InputError, match="None of its scopes launched a kernel"):
        load(write(tmp_path, tree(scope("step_0"))))
    deep = b'[{"children":' * 20_000
    with pytest.raises(InputError, match="contains no kernel"):
        load(write(tmp_path, deep))
    assert not proton.sniff(b'{"displayTimeUnit":"ms","traceEvents":[{"ph":"X"}]}')
    assert not proton.sniff(b'[{"ph":"X","name":"a"}]')
    assert reader.sniff(b'[{"children":[]}]')
