"""vLLM and SGLang, recorded by their own profilers on a CPU (examples/serving): their batches are steps and phases.

Two requests of 90 and 60 tokens share batches of 128: 90 + 38 tokens of prompts, then the other 22 beside one decoded
token, then a token of each. Times are held against sums over the file's events, without the reader.
"""

import gzip
import json
import re
from collections import Counter
from pathlib import Path

import pytest

import tracekit

FOLDER = Path(__file__).parents[1] / "examples" / "traces" / "serving"
BATCHES = {
    "cpu_vllm": [
        "execute_context_2(128)_generation_0(0)",
        "execute_context_1(22)_generation_1(1)",
        "execute_context_0(0)_generation_2(2)",
    ],
    "cpu_vllm_scopes": [
        "execute_128_context_2(sq128sk128sqsq9544sqsk9544)_generation_0(sq0sk0sqsq0sqsk0)",
        "execute_23_context_1(sq22sk60sqsq484sqsk1320)_generation_1(sq1sk91sqsq1sqsk91)",
        "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk153sqsq2sqsk153)",
    ],
    "cpu_vllm_0.13": ["execute_new_2_cached_0", "execute_new_0_cached_2", "execute_new_0_cached_2"],
    "cpu_sglang": ["step[EXTEND bs=2 toks=128]", "step[MIXED bs=2]", "step[DECODE bs=2]"],
    "cpu_sglang_detailed": [
        "step[EXTEND bs=2 toks=128 c_sq=128 c_sqsq=9544 c_sqsk=9544 c_sk=128 forward_id=4]",
        "step[MIXED bs=2 c=1 g=1 c_sq=22 c_sk=60 c_sqsq=484 c_sqsk=1320"
        " g_sq=1 g_sk=91 g_sqsq=1 g_sqsk=91 forward_id=5]",
        "step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=153 g_sk=153 forward_id=6]",
    ],
}
PHASES = dict.fromkeys(BATCHES, ("prefill", "mixed", "decode")) | {"cpu_vllm_0.13": ("prefill", "decode", "decode")}
"""vLLM 0.13 named the rest of a prompt cached."""

each = pytest.mark.parametrize("name", BATCHES)


def content(name):
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def spans(events, category):
    """Return name, start and end in ns, by start; the longest first of those that start together."""
    rows = [(e["name"], round(e["ts"] * 1000), e["dur"]) for e in events if e.get("cat") == category]
    return sorted(((n, start, start + round(dur * 1000)) for n, start, dur in rows), key=lambda r: (r[1], -r[2]))


def outermost(rows):
    """Return the spans of a thread that no other span contains."""
    kept, until = [], 0
    for row in rows:
        if row[1] >= until:
            kept.append(row)
            until = row[2]
    return kept


def batches(events):
    return [row for row in spans(events, "user_annotation") if row[0].startswith(("execute_", "step["))]


@pytest.fixture(scope="module")
def samples():
    return {name: (content(name)["traceEvents"], tracekit.analyze(FOLDER / f"{name}.json.gz")) for name in BATCHES}


@each
def test_every_batch_is_a_step(name, samples):
    events, analysis = samples[name]
    marks = batches(events)
    assert [batch for batch, _, _ in marks] == BATCHES[name]
    assert analysis.timeline.steps["wall_ns"].tolist() == [end - start for _, start, end in marks]


@each
def test_what_a_batch_does_is_the_phase_of_its_ops(name, samples):
    events, analysis = samples[name]
    expected = dict.fromkeys(PHASES[name], 0)
    marks = list(zip(batches(events), PHASES[name], strict=True))
    for _, start, end in outermost(spans(events, "cpu_op")):
        within = [phase for (_, begin, until), phase in marks if begin <= start < until]
        for phase in within[:1]:
            expected[phase] += end - start
    phases = analysis.phases.set_index("name")
    assert phases["busy_ns"].to_dict() == expected
    assert phases["calls"].to_dict() == Counter(PHASES[name])


@pytest.mark.parametrize("name", ["cpu_vllm", "cpu_sglang"])
def test_modules_are_layers_and_sampling_comes_after_the_batch(name, samples):
    events, analysis = samples[name]
    modules = [module for module, _, _ in spans(events, "python_function") if module.startswith("nn.Module: ")]
    calls = analysis.layer_types.set_index("type")["calls"]
    for kind, count in {"LlamaDecoderLayer": 2 * 3, "RMSNorm": 5 * 3, "Sampler": 3}.items():
        assert sum(re.fullmatch(rf"nn\.Module: {kind}_\d+", module) is not None for module in modules) == count
        assert calls[kind] == count
    sampled = analysis.work[analysis.work["layer"].isin(analysis.layers.index[analysis.layers["path"] == "Sampler_0"])]
    assert len(sampled) > 0 and (sampled["phase"] == "").all()


def test_inner_scopes_of_vllm_are_layers_where_modules_were_not_recorded(samples):
    calls = samples["cpu_vllm_scopes"][1].layers.set_index("path")["calls"]
    for scope in ("preprocess", "forward", "postprocess", "sample"):
        assert calls[f"llm_engine step: get_output/gpu_model_runner: {scope}"] == 3


@each
def test_a_sample_says_nothing_of_its_environment(name):
    text = json.dumps(content(name))
    assert not re.search(r'"(?:host_name|traceName)"|"/|/(?:home|root|tmp|work|usr)/|site-packages', text)
