"""A trace of the GPU alone (`activities=[ProfilerActivity.CUDA]`): no ops, so no layers, FLOPs or bytes; times hold.

Held against sums over the file's events, without the reader.
"""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracekit
from tracekit.cli import main
from tracekit.reports.answer import headline

SAMPLE = Path(__file__).parents[1] / "examples" / "traces" / "h200_gpu-only.json.gz"
DEVICE = ("kernel", "gpu_memset")


@pytest.fixture(scope="module")
def content():
    return json.loads(gzip.decompress(SAMPLE.read_bytes()))


@pytest.fixture(scope="module")
def spans(content):
    """Return (category, name, start, end) of the GPU's events in ns, by start."""
    events = [event for event in content["traceEvents"] if event.get("cat") in DEVICE]
    rows = [(e["cat"], e["name"], round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in events]
    return sorted(((cat, name, start, start + length) for cat, name, start, length in rows), key=lambda row: row[2])


@pytest.fixture(scope="module")
def analysis():
    return tracekit.analyze(SAMPLE)


def test_there_is_no_op_in_it(content):
    assert not {"cpu_op", "user_annotation", "python_function"} & {e.get("cat") for e in content["traceEvents"]}


def test_every_kernel_is_there_with_its_time(analysis, spans):
    kernels = tracekit.load(SAMPLE).device
    assert kernels["name"].tolist() == [name for _, name, _, _ in spans]
    assert kernels["duration_ns"].tolist() == [end - start for _, _, start, end in spans]
    assert [cat for cat, *_ in spans].count("kernel") == 18
    assert analysis.kernels.calls.sum() == len(spans) == 20
    assert analysis.kernels.busy_ns.sum() == sum(end - start for _, _, start, end in spans)


def test_busy_and_idle_time(analysis, spans, content):
    """One stream, so nothing overlaps; the step lasts from the first launch to the last work, without start-up."""
    calls = [e for e in content["traceEvents"] if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    first = min(round(e["ts"] * 1000) for e in calls if "aunch" in e["name"] or "Memset" in e["name"])
    last, set_apart = max(end for _, _, _, end in spans), int(analysis.set_apart["duration_ns"].sum())
    busy = sum(end - start for _, _, start, end in spans)
    assert analysis.timeline.busy_ns == busy
    assert set(analysis.set_apart["name"]) == {"cuLaunchKernelEx"}
    assert analysis.timeline.wall_ns == pytest.approx(last - first - set_apart, rel=0.01)
    assert analysis.timeline.idle_ns == analysis.timeline.wall_ns - busy
    assert analysis.timeline.device.copy_ns == sum(end - start for cat, _, start, end in spans if cat == "gpu_memset")


def test_what_has_no_op_and_no_layer_is_said(analysis):
    assert analysis.coverage.op == analysis.coverage.layer == 0
    assert analysis.source.layers_from == "none"
    assert analysis.layers["path"].tolist() == ["(no layer)"]
    assert analysis.layers["busy_ns"].tolist() == [analysis.timeline.busy_ns]
    problems = analysis.problems.set_index("code")["count"]
    assert problems.to_dict() == {"launch-without-op": 20, "no-layers": 1}


def test_flops_are_unknown_not_zero(analysis):
    assert analysis.kernels.loc[analysis.kernels.category == "kernel", "flops"].isna().all()


def test_the_terminal_says_it():
    result = CliRunner().invoke(main, ["analyze", str(SAMPLE), "--no-cache"])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "op 0 %, layer 0 %" in text
    assert "20 device events were launched outside every recorded op. The trace marks no layers." in text


def test_the_sample_says_nothing_of_its_environment(content):
    assert set(content) == {
        *("schemaVersion", "deviceProperties", "cuda_driver_version", "cuda_runtime_version", "cupti_version"),
        *("displayTimeUnit", "baseTimeNanoseconds", "traceEvents"),
    }


def test_without_the_host_nobody_knows_what_it_did(tmp_path, content):
    path = tmp_path / "kernels.json"
    kept = [event for event in content["traceEvents"] if event.get("cat") in DEVICE or event["ph"] == "M"]
    path.write_text(json.dumps(content | {"traceEvents": kept}))
    analysis = tracekit.analyze(path)
    assert "no-host-events" in set(analysis.problems["code"])
    assert not analysis.recommendations
    assert headline(analysis).startswith("kernels, fp16, on an H200: 98 % idle. Nothing can be advised for it")
    output = CliRunner().invoke(main, ["analyze", str(path)]).output
    assert "contains no events of the host" in " ".join(output.split())
