"""The file of a modelled run: its content, and how readers and analyses understand it."""

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from tiny_models import settings_of

from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import gradients, scaling, start
from tracekit.analyzers.trace import CaptureInfo, load
from tracekit.capture import model_trace
from tracekit.reports.words import token_times
from tracekit.run import Settings


def _write(settings: Settings) -> tuple[CaptureInfo, Path]:
    path = Path(settings.model) / "trace.json.gz"
    return model_trace.write_trace(settings, hardware.find(settings.gpu), path), path


def _events(path: Path) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def _start(event: dict[str, Any]) -> int:
    return round(event["ts"] * 1000)


def _end(event: dict[str, Any]) -> int:
    return _start(event) + round(event["dur"] * 1000)


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> tuple[CaptureInfo, Path]:
    return _write(settings_of("gpt2", tmp_path_factory.mktemp("train"), workload="train", dtype="bf16", gpu="h200"))


def test_the_reader_takes_it_as_a_capture_of_the_named_gpu(train: tuple[CaptureInfo, Path]) -> None:
    info, path = train
    metadata = load(path).metadata
    assert metadata.capture == info
    assert (info.source, info.device, info.gpu, info.steps) == ("modelled", "model", "h200", 3)
    device = metadata.devices[0]
    assert (device.name, device.sms, device.compute_capability) == ("NVIDIA H200", 132, (9, 0))
    assert load(path).problems.empty


def test_every_event_is_marked(train: tuple[CaptureInfo, Path]) -> None:
    events = _events(train[1])
    assert {event["args"]["modelled"] for event in events if event["ph"] != "f"} == {True}
    assert all(
        "modelled" in event["name"] or "DtoH" in event["name"] for event in events if event.get("cat") == "kernel"
    )


def test_nothing_overlaps_partially_on_a_track(train: tuple[CaptureInfo, Path]) -> None:
    tracks = defaultdict(list)
    for event in _events(train[1]):
        if event["ph"] == "X":
            tracks[event["pid"], event["tid"]].append((_start(event), -_end(event)))
    assert len(tracks) == 3
    for spans in tracks.values():
        open_until: list[int] = []
        for begin, minus_end in sorted(spans):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or -minus_end <= open_until[-1]
            open_until.append(-minus_end)


def test_kernels_lead_to_their_launches_and_ops(train: tuple[CaptureInfo, Path]) -> None:
    events = _events(train[1])
    launches = {e["args"]["correlation"]: e for e in events if "Launch" in e["name"] or "Memcpy" in e["name"]}
    ops = {e["args"].get("External id"): e for e in events if e.get("cat") == "cpu_op"}
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len({e["args"]["correlation"] for e in kernels}) == len(kernels) > 300
    for kernel in kernels:
        launch, op = launches[kernel["args"]["correlation"]], ops[kernel["args"]["External id"]]
        assert _start(op) <= _start(launch) < _end(launch) <= _end(op)
        assert launch["tid"] == op["tid"] and _start(kernel) >= _end(launch)
        assert f" {op['name']} " in kernel["name"]


def test_backward_work_goes_to_the_layers_of_the_forward(train: tuple[CaptureInfo, Path]) -> None:
    analysis = analyze(load(train[1]))
    work = analysis.work.assign(path=analysis.layers.path.to_numpy()[analysis.work.layer])
    backward = work[(work.phase == "backward") & work.name.str.contains("addmm|mm ")]
    assert Counter(backward.path[backward.step == 0]) == Counter(
        {f"transformer.h.{i}.{m}": 2 for i in (0, 1) for m in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
        | {"lm_head": 2}
    )
    assert analysis.coverage.cost == 1.0
    assert set(work.phase) == {"forward", "backward", "optimizer"}


def test_every_gradient_is_noted_when_it_is_ready(train: tuple[CaptureInfo, Path]) -> None:
    """They have as many elements as the model has parameters, and scaling is predicted from them."""
    info, path = train
    trace = load(path)
    analysis, base = start(trace)
    assert base is not None
    ready = gradients(trace, analysis, base)
    assert sum(each.bytes for each in ready) == 2 * info.parameters
    assert [each.after for each in ready] == sorted(each.after for each in ready)
    four = scaling(base, ready, 4)
    assert 0.5 < four.efficiency.expected < 1


def test_busy_time_is_the_sum_of_the_modelled_kernels(train: tuple[CaptureInfo, Path]) -> None:
    expected = sum(round(e["dur"] * 1000) for e in _events(train[1]) if e.get("cat") in ("kernel", "gpu_memcpy"))
    assert analyze(load(train[1])).timeline.busy_ns == expected


def test_a_step_lasts_as_long_as_the_latency_says(train: tuple[CaptureInfo, Path]) -> None:
    info, path = train
    steps = [e for e in _events(path) if e.get("cat") == "user_annotation" and e["name"].startswith("step: ")]
    assert info.latency is not None
    assert [round(e["dur"], 3) for e in steps] == [round(info.latency.median_us, 3)] * 3
    assert info.latency.p10_us < info.latency.median_us < info.latency.p90_us
    assert info.latency.samples == 0


def test_generate_tells_times_of_tokens(tmp_path: Path) -> None:
    info, path = _write(settings_of("gpt2", tmp_path, workload="generate", new_tokens=5))
    assert info.latency is not None
    first, between = info.phases["time_to_first_token"], info.phases["time_between_tokens"]
    assert info.latency.median_us == pytest.approx(first.median_us + 4 * between.median_us, rel=0.02)
    assert between.p10_us < between.median_us < between.p90_us
    told = token_times(analyze(load(path)))
    assert told.startswith("MODELLED first after") and "then one each" in told and "tokens/s while decoding" in told


def test_the_same_run_is_the_same_file(tmp_path: Path) -> None:
    settings = settings_of("gpt2", tmp_path, workload="decode")
    _, path = _write(settings)
    first = path.read_bytes()
    _write(settings)
    assert path.read_bytes() == first


def test_a_model_larger_than_the_gpu_is_modelled_and_said_to_be(tmp_path: Path) -> None:
    said: list[str] = []
    settings = settings_of("gpt2", tmp_path, {"vocab_size": 20_000_000, "n_embd": 256}, gpu="t4")
    model_trace.write_trace(settings, hardware.find("t4"), tmp_path / "trace.json.gz", said.append)
    assert len(said) == 1 and "more than the 16 GB of an NVIDIA T4" in said[0]
    assert (tmp_path / "trace.json.gz").exists()


def test_amd_gpus_launch_by_hip(tmp_path: Path) -> None:
    _, path = _write(settings_of("bert", tmp_path, gpu="mi300x"))
    calls = {e["name"] for e in _events(path) if e.get("cat") == "cuda_runtime"}
    assert calls == {"hipLaunchKernel", "hipDeviceSynchronize"}
