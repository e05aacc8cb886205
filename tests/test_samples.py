"""Our traces of an H200, from file to recommendation."""

import json
from pathlib import Path

import numpy as np
import pytest

import tracekit
from tracekit.advise import OPTIMIZATIONS

FOLDER = Path(__file__).parents[1] / "examples" / "traces"
SAMPLES = sorted(FOLDER.glob("h200_*_*.json.gz"))


@pytest.fixture(scope="module")
def analysis():
    known = {}

    def analyzed(name):
        if name not in known:
            known[name] = tracekit.analyze(FOLDER / f"h200_{name}.json.gz")
        return known[name]

    return analyzed


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_everything_is_attributed_and_counted_once(path, analysis):
    result = analysis(path.name.removeprefix("h200_").removesuffix(".json.gz"))
    assert result.source.kind == "measured"
    assert result.source.gpu.id == "h200"
    assert result.source.layers_from == "tracekit ranges"
    assert min(result.coverage.op, result.coverage.layer, result.coverage.cost) >= 0.95
    for busy in (result.layers.self_busy_ns, result.kernels.busy_ns, result.ops.busy_ns):
        assert busy.sum() == result.timeline.busy_ns
    assert not set(result.problems["code"]) - {"above-roof-l2"}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_simulated_baseline_takes_the_measured_time(path, analysis):
    from tracekit.analyzers.predict import baseline

    base = baseline(tracekit.load(path), analysis(path.name.removeprefix("h200_").removesuffix(".json.gz")))
    assert base.latency_ns == pytest.approx(base.stated_ns, rel=0.05)


def speedups(advice):
    return {considered.id: considered.speedup for considered in advice.considered}


@pytest.mark.parametrize("name", ["gpt2_decode", "llama-1b_decode", "mistral-7b_decode", "qwen2-0.5b_decode"])
def test_decoding_waits_for_the_host_and_is_told_so(name, analysis):
    result = analysis(name)
    assert result.bound.ranked()[0][0] == "launch"
    assert {result.recommendations[0].id, result.recommendations[1].id} <= {"cuda-graphs", "compile", "max-autotune"}
    for smaller in ("half-precision", "tf32", "int8-weight-only", "int4-weight-only"):
        predicted = speedups(result)[smaller]
        assert predicted is None or 0.35 < predicted.low <= predicted.high < 1.1


@pytest.mark.parametrize(
    ("name", "optimization", "measured_us"),
    [
        ("gpt2_decode", "cuda-graphs", 1633),
        ("llama-1b_decode", "cuda-graphs", 2486),
        ("gpt2_prefill", "cuda-graphs", 5466),
        ("gpt2_prefill", "half-precision", 5253),
        ("gpt2_prefill", "tf32", 5343),
    ],
)
def test_what_was_predicted_was_measured(name, optimization, measured_us, analysis):
    """Latencies, since the host's speed differs between processes; how they were measured: docs/predictions.md."""
    result = analysis(name)
    predicted = speedups(result)[optimization]
    before = result.latency.unprofiled.median_us
    assert 0.9 * before / predicted.high <= measured_us <= 1.1 * before / predicted.low


def test_layers_of_gpt2(analysis):
    types = analysis("gpt2_prefill").layer_types.set_index("type").layers
    assert types["GPT2Attention"] == types["GPT2MLP"] == types["GPT2Block"] == 12
    assert types["Conv1D"] == 48


def test_flops_of_gpt2_prefill(analysis):
    """2 FLOPs per weight and token in the blocks and the LM head, 4 per causal attention score and head dimension."""
    result = analysis("gpt2_prefill")
    products = 2 * 512 * (12 * 12 * 768 * 768 + 50257 * 768)
    gemm = result.ops[result.ops.family == "gemm"].flops.sum()
    assert gemm == products
    attention = result.ops[result.ops.family == "attention"].flops.sum()
    assert attention == pytest.approx(12 * 12 * 4 * 64 * 512 * 513 / 2, rel=0.01)


def test_phases_of_training(analysis):
    phases = analysis("gpt2_train").phases.set_index("name")
    assert phases.busy_ns["forward"] < phases.busy_ns["backward"]
    assert phases.busy_ns["optimizer"] > 0
    layers = analysis("gpt2_train").layers
    blocks = layers[layers.path.str.fullmatch(r"transformer\.h\.\d+")]
    assert len(blocks) == 12
    assert blocks.busy_ns.max() < 1.5 * blocks.busy_ns.min()


def test_another_gpu_is_projected(analysis):
    result = analysis("gpt2_decode_eager_for-t4")
    assert result.projection.gpu.id == "t4"
    assert result.projection.latency_us.low > result.timeline.busy_ns / 1e3
    assert result.projection.busy_us.expected > 1.5 * result.timeline.busy_ns / 1e3
    assert analysis("gpt2_decode").projection is None


def test_a_sample_says_nothing_of_its_environment():
    import gzip

    for path in SAMPLES:
        text = gzip.decompress(path.read_bytes()).decode()
        header = json.loads(text[: text.index(',"traceEvents"')] + "}")
        assert set(header) <= {
            *("schemaVersion", "tracekit", "deviceProperties", "record_shapes", "displayTimeUnit"),
            *("baseTimeNanoseconds", "cuda_driver_version", "cuda_runtime_version", "cupti_version"),
        }


def test_every_optimization_was_considered(analysis):
    assert [c.id for c in analysis("gpt2_decode").considered] == [o.id for o in OPTIMIZATIONS]
    planned = [step.name.partition(":")[0] for step in analysis("gpt2_decode").plan if not step.throughput]
    advised = [r for r in analysis("gpt2_decode").recommendations if r.id != "batching"]
    assert [r.id for r in advised][: len(planned)] == planned
    assert np.all(np.diff([r.speedup.expected for r in advised[len(planned) :]]) <= 0)
