"""Compares analyses of real traces with answers computed from their JSON in plain Python."""

import gzip
import json
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from kineto_files import TRACES

import tracekit
from tracekit.analyzers import load
from tracekit.analyzers.attribute import in_steps
from tracekit.analyzers.results import (
    KERNELS,
    LAYER_OPS,
    LAYER_PARTS,
    LAYER_TYPES,
    LAYERS,
    NOT_RECORDED,
    OPS,
    PHASES,
    STEPS,
    WORK,
)


@pytest.fixture(scope="module", params=TRACES)
def named(request, shared):
    path = shared / "traces" / f"{request.param}.json.gz"
    return request.param, path, tracekit.analyze(path)


def raw_events(path):
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        return [e for e in json.load(file, parse_float=str)["traceEvents"] if e.get("ph") == "X"]


def union(spans):
    total, until = 0, None
    for start, end in sorted(spans):
        total += max(end - (start if until is None else max(start, until)), 0)
        until = end if until is None else max(until, end)
    return total


def span(event):
    """Return start and end in whole nanoseconds, the resolution of a trace."""
    start = nanoseconds(event["ts"])
    return start, start + nanoseconds(event["dur"])


def nanoseconds(microseconds):
    return round(Fraction(microseconds) * 1000)


def device_events(events):
    return [e for e in events if str(e.get("cat")).lower() in ("kernel", "gpu_memcpy", "gpu_memset")]


def columns_of(table):
    return [column.name for column in table.columns]


def test_tables_are_as_documented_and_sum_to_the_busy_time(named):
    _, _, analysis = named
    tables = {
        WORK: analysis.work,
        LAYERS: analysis.layers,
        LAYER_OPS: analysis.layer_ops,
        LAYER_PARTS: analysis.layer_parts,
        LAYER_TYPES: analysis.layer_types,
        OPS: analysis.ops,
        KERNELS: analysis.kernels,
        PHASES: analysis.phases,
        STEPS: analysis.timeline.steps,
    }
    for table, frame in tables.items():
        assert list(frame.columns) == columns_of(table)
    assert analysis.timeline.busy_ns == analysis.work.busy_ns.sum()
    busy = analysis.work[in_steps(analysis.work)].busy_ns.sum()
    assert busy == analysis.layers.self_busy_ns.sum() == analysis.kernels.busy_ns.sum() == analysis.ops.busy_ns.sum()
    assert analysis.timeline.idle_ns >= 0
    assert sum(share for _, share in analysis.bound.ranked()) == pytest.approx(1)
    assert analysis.layers.busy_ns.max() <= busy
    assert analysis.layer_types.busy_ns.max() <= busy or analysis.layer_types.empty


def test_busy_time_is_the_union_of_the_device_events(named):
    _, path, analysis = named
    by_device = defaultdict(list)
    for event in device_events(raw_events(path)):
        by_device[event["args"].get("device")].append(span(event))
    if not by_device:
        assert analysis.source.device == "cpu"
        return
    count = sum(map(len, by_device.values()))
    unrecorded = analysis.set_apart[analysis.set_apart["kind"] == NOT_RECORDED]
    assert len(analysis.work) == count + len(unrecorded)
    busy = sum(map(union, by_device.values())) + unrecorded["duration_ns"].sum()
    assert analysis.timeline.busy_ns == pytest.approx(busy, abs=count)


def test_work_sums_flops_and_bytes_of_every_table(named):
    _, _, analysis = named
    for column in ("flops", "bytes"):
        total = np.nansum(analysis.work[in_steps(analysis.work)][column])
        for table in (analysis.kernels, analysis.ops, analysis.layers[analysis.layers.parent < 0]):
            assert np.nansum(table[column]) == pytest.approx(total)


def launching_names(events):
    """Return the innermost cpu_op around the launch of each device event, by brute force."""
    launches = {
        e["args"]["correlation"]: e
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver")
        and any(word in e["name"].lower() for word in ("launch", "memcpy", "memset"))
    }
    ops = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op":
            ops[event["tid"]].append((*span(event), event["name"]))
    for thread in ops.values():
        thread.sort()
    for event in device_events(events):
        launch = launches.get(event["args"]["correlation"])
        start = span(launch)[0] if launch else None
        around = [name for first, last, name in ops[launch["tid"]] if first <= start < last] if launch else []
        yield event, start, around[-1] if around else None


@pytest.mark.parametrize("name", ["h200_gpt2_fp32-eager_prefill", "h200_llama-1b_bf16_decode"])
def test_time_by_op_is_that_of_a_brute_force(shared, name):
    path = shared / "traces" / f"{name}.json.gz"
    analysis, expected = tracekit.analyze(path), Counter()
    for event, _, op in launching_names(raw_events(path)):
        expected[op] += nanoseconds(event["dur"])
    ops = analysis.ops[analysis.ops.kernels > 0]
    assert analysis.coverage.op >= 0.95
    assert dict(zip(ops.name, ops.busy_ns, strict=True)) == pytest.approx(dict(expected), abs=0)


@pytest.fixture(scope="module")
def gpt2(shared):
    path = shared / "traces" / "h200_gpt2_fp32-eager_prefill.json.gz"
    return raw_events(path), tracekit.analyze(path)


def test_layers_of_gpt2(gpt2):
    _, analysis = gpt2
    types = analysis.layer_types.set_index("type").layers
    assert analysis.source.layers_from == "nn.Module events"
    assert types[["GPT2Block", "GPT2Attention", "GPT2MLP", "LayerNorm"]].tolist() == [12, 12, 12, 25]
    assert analysis.layer_types.set_index("type").calls["GPT2Attention"] == 36
    assert analysis.coverage.layer >= 0.95


def test_time_inside_the_attentions_of_gpt2_is_that_of_a_brute_force(gpt2):
    events, analysis = gpt2
    attentions = [span(e) for e in events if e["name"].startswith("nn.Module: GPT2Attention_")]
    inside = [
        event
        for event, launched, _ in launching_names(events)
        if launched is not None and any(start <= launched < end for start, end in attentions)
    ]
    row = analysis.layer_types.set_index("type").loc["GPT2Attention"]
    assert row.busy_ns == sum(nanoseconds(event["dur"]) for event in inside)


def test_flops_of_the_products_of_gpt2_are_those_of_its_shapes(gpt2):
    """3 forwards of 512 tokens: 12 blocks with 12 h^2 weights, the head h x vocabulary, two products a head."""
    _, analysis = gpt2
    h, tokens, vocabulary, forwards = 768, 512, 50257, 3
    expected = 2 * tokens * (12 * 12 * h * h + h * vocabulary) + 12 * 2 * 2 * tokens * tokens * h
    work = analysis.work
    assert work.flops[work.family == "gemm"].sum() == pytest.approx(forwards * expected, rel=0.001)
    assert (work.roof_fraction[work.family == "gemm"] <= 1).all()


def test_steps_of_gpt2(gpt2):
    events, analysis = gpt2
    spans = [span(e) for e in events if e["name"].startswith("step_") and e["cat"] == "user_annotation"]
    steps = analysis.timeline.steps
    assert len(steps) == 3
    assert steps.wall_ns.tolist() == [end - start for start, end in sorted(spans)]
    assert steps.kernels.sum() == len(analysis.work)


def test_the_decode_of_llama_waits_for_launches(shared):
    analysis = tracekit.analyze(shared / "traces" / "h200_llama-1b_bf16_decode.json.gz")
    assert analysis.bound.ranked()[0][0] == "launch"
    assert analysis.source.precision == "bf16"
    assert analysis.coverage.cost >= 0.95
    gemm = analysis.work[analysis.work.family == "gemm"]
    assert (gemm.roof_fraction.max() <= 1) and (gemm.roof_fraction.max() > 0.5)


def test_backward_of_resnet_finds_its_forward(shared):
    analysis = tracekit.analyze(shared / "traces" / "v100_resnet-ddp_float-ts.json.gz")
    layers = analysis.layers.set_index("path")
    forward = layers.loc["## forward ##/DistributedDataParallel.forward"]
    work = analysis.work[analysis.work.layer == list(layers.index).index(forward.name)]
    backward = work.op.map(load_names(shared, "v100_resnet-ddp_float-ts")).str.contains("ackward")
    assert backward.any()
    assert (~backward).any()


def load_names(shared, name):
    return load(shared / "traces" / f"{name}.json.gz").host["name"].astype(str)


def test_orphans_stay(shared):
    analysis = tracekit.analyze(shared / "traces" / "h100_qwen1.5-0.5b.json.gz")
    assert int((analysis.work.op < 0).sum()) == 509
    assert "(no op)" not in set(analysis.ops["name"])
    assert analysis.problems.set_index("code")["count"][["no-launch", "work-outside-steps"]].tolist() == [509, 509]
