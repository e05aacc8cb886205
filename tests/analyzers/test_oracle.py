"""Compares the temporal breakdown with that of HolisticTraceAnalysis, which benchmarks/oracle.py has stored."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from handmade import Handmade

import tracekit
from tracekit.analyzers import analyze

STORED = json.loads((Path(__file__).parent / "oracle.json").read_text())["traces"]
EXAMPLES = Path(__file__).parents[2] / "examples/traces"
COUNTS_HOST_EVENTS = {"a100_triton.json.gz", "h200_compile-and-graph.json.gz"}
"""Where the oracle takes ops of Triton kernels, which carry a stream, for device work (docs/oracle.md)."""


@pytest.fixture
def trace_of(request):
    def path(name):
        if (EXAMPLES / name).exists():
            return EXAMPLES / name
        shared = request.getfixturevalue("shared") / "traces"
        return shared / name if (shared / name).exists() else shared / "ranks" / name

    return path


@pytest.mark.parametrize("name", sorted(set(STORED) - COUNTS_HOST_EVENTS))
def test_times_agree_to_a_thousandth(name, trace_of):
    stored = STORED[name]
    if "error" in stored:
        assert tracekit.analyze(trace_of(name)).timeline.wall_ns > 0
        return
    timeline = tracekit.analyze(trace_of(name)).timeline
    device = timeline.device
    span_us, busy_us = device.span_ns / 1e3, timeline.busy_ns / 1e3
    assert span_us == pytest.approx(stored["span_us"], rel=1e-3)
    assert device.compute_ns / 1e3 == pytest.approx(stored["compute_us"], rel=1e-3)
    assert span_us - busy_us == pytest.approx(stored["idle_us"], rel=1e-3, abs=1e-3 * span_us)
    assert busy_us - device.compute_ns / 1e3 == pytest.approx(stored["other_us"], rel=1e-3, abs=0.02)
    hidden = device.communication_ns - device.exposed_communication_ns
    assert bool(device.communication_ns) == (stored["overlap_percent"] is not None)
    if device.communication_ns:
        assert 100 * hidden / device.communication_ns == pytest.approx(stored["overlap_percent"], abs=0.005)


@pytest.mark.parametrize("name", sorted(COUNTS_HOST_EVENTS))
def test_where_it_differs_the_oracle_counts_ops_as_kernels(name, trace_of):
    """Recounted from the file: device events alone are our compute time, with the ops that carry a stream its own."""
    with gzip.open(trace_of(name), "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    kernels = [e for e in events if e["cat"] == "kernel"]
    launched = [e for e in events if e["cat"] == "cpu_op" and "stream" in e["args"]]
    assert launched
    ours = tracekit.analyze(trace_of(name)).timeline.device.compute_ns / 1e3
    assert ours == pytest.approx(covered_us(kernels), rel=1e-3)
    assert STORED[name]["compute_us"] == pytest.approx(covered_us(kernels + launched), rel=1e-3)
    assert STORED[name]["compute_us"] > 1.05 * ours


def covered_us(events):
    total, until = 0.0, -np.inf
    for start, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in events):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total


def test_communication_is_exposed_where_nothing_is_computed():
    made = Handmade().device("ncclDevKernel_AllReduce_Sum_f32", 10, 20, stream=20).device("gemm", 0, 15)
    made.device("gemm", 25, 10).device("Memcpy DtoH (Device -> Pinned)", 12, 30, category="memcpy", stream=21, bytes=8)
    made.device("gemm", 100, 5, device=1)
    timeline = analyze(made.trace()).timeline
    assert timeline.device.communication_ns == 20_000
    assert timeline.device.exposed_communication_ns == 10_000
    assert timeline.device.compute_ns == 30_000
    assert timeline.device.copy_ns == 30_000
    assert timeline.device.span_ns == 42_000 + 5_000
    assert timeline.busy_ns == 42_000 + 5_000


def test_a_cpu_has_no_device_time():
    assert analyze(Handmade().host("op", "aten::add", 0, 5).trace()).timeline.device is None
