"""`tracekit predict` on real traces: measured, modelled and imported."""

import gzip
import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from click.testing import CliRunner

import tracekit
from tracekit.advise import find
from tracekit.advise.gains import pays
from tracekit.analyzers.core import InputError, Interval
from tracekit.cli import main
from tracekit.reports.answer.prediction import to_dict
from tracekit.reports.words import printable, schema

TRACES = Path(__file__).parents[2] / "examples/traces"
DECODE = TRACES / "h200_gpt2_decode.json.gz"
PREFILL = TRACES / "h200_gpt2_prefill.json.gz"
pytestmark = pytest.mark.usefixtures("started_once")


def invoke(*words):
    return CliRunner().invoke(main, ["predict", *map(str, words)], prog_name="tracekit")


def as_json(*words):
    result = invoke(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    jsonschema.validate(answer, schema("prediction"), cls=jsonschema.Draft202012Validator)
    return answer


def sums(export):
    rows = export["by_op_class"]
    return sum(row["before_us"] for row in rows), sum(row["after_us"] for row in rows)


def test_a_measured_run_starts_from_its_unprofiled_latency():
    answer = as_json(DECODE, "--apply", "cuda-graphs+half-precision")
    assert answer["applied"] == ["half-precision", "cuda-graphs"]
    assert (answer["baseline"]["timed"], answer["baseline"]["profiler_share"]) == ("unprofiled", None)
    assert answer["baseline"]["latency_us"] == 5774.208
    assert answer["baseline"]["memory_bytes"] == 618045952
    assert answer["baseline"]["calibrated"]["passed"] and answer["baseline"]["as_traced"]["passed"]
    kept = 32 * 2**20
    assert answer["predicted"]["memory_bytes"] == (618045952 - kept) // 2 + kept
    gain, latency = answer["speedup"], answer["predicted"]["latency_us"]
    assert 3 < gain["low"] < gain["expected"] < 12
    assert gain["expected"] < gain["high"] < 2 * gain["expected"]
    assert latency["expected"] == pytest.approx(5774.208 / gain["expected"], rel=1e-3)
    assert latency["low"] == pytest.approx(5774.208 / gain["high"], rel=1e-3)


@pytest.mark.parametrize("asked", [(), ("--apply", "compile"), ("--gpu", "t4"), ("--batch-size", "4")])
def test_the_classes_sum_to_the_latencies(asked):
    answer = as_json(PREFILL, *asked)
    before, after = sums(answer)
    assert before == pytest.approx(answer["baseline"]["latency_us"], abs=1e-3)
    assert after == pytest.approx(answer["predicted"]["latency_us"]["expected"], abs=2e-3)


def test_an_imported_trace_starts_from_its_profiled_latency(shared):
    answer = as_json(shared / "traces/h200_gpt2_fp32-eager_prefill.json.gz", "--apply", "half-precision+sdpa")
    assert answer["baseline"]["timed"] == "profiled"
    # Measured: 9.8 ms of 22 ms are left without the profiler.
    assert answer["baseline"]["profiler_share"] == pytest.approx(1 - 9.8 / 22.1, abs=0.1)
    assert answer["baseline"]["latency_us"] == pytest.approx(22136, rel=0.01)
    assert answer["baseline"]["as_traced"]["passed"]
    assert "profiler" in [row["op_class"] for row in answer["by_op_class"]]
    assert "profiler" in answer["caveats"][0]
    assert answer["predicted"]["memory_bytes"] is None
    assert sums(answer)[0] == pytest.approx(answer["baseline"]["latency_us"], abs=1e-3)


def test_without_apply_single_steps_and_the_plan_are_predicted():
    answer = as_json(DECODE)
    single = {each["id"]: each for each in answer["considered"]}
    assert answer["plan"] and answer["plan"][0]["speedup"] == answer["plan"][0]["cumulative"]
    assert all(pays(Interval(**step["speedup"])) for step in answer["plan"])
    latency_steps = [step for step in answer["plan"] if not step["throughput"]]
    assert answer["speedup"]["expected"] == latency_steps[-1]["cumulative"]["expected"]
    assert sorted(answer["applied"]) == sorted(step["name"] for step in latency_steps)
    best = max((each for each in single.values() if each["recommended"] and each["id"] != "batching"), key=_low)
    assert latency_steps[-1]["cumulative"]["low"] >= best["speedup"]["low"] ** 0.95
    assert single["llm-int8"]["speedup"]["high"] < 1
    assert "→" in single["llm-int8"]["explained"]


def _low(option):
    return option["speedup"]["low"]


def test_a_batch_is_a_throughput():
    answer = as_json(DECODE, "--batch-size", "16")
    assert (answer["applied"], answer["batch_size"], answer["work_factor"]) == (["batching:16"], 16, 16.0)
    assert 10 < answer["speedup"]["expected"] <= 16
    assert answer["predicted"]["latency_us"]["expected"] >= answer["baseline"]["latency_us"]


def test_what_an_optimization_gives_at_a_batch_is_told_apart_from_the_batch():
    answer = as_json(DECODE, "--batch-size", "16", "--apply", "half-precision:fp16")
    there = answer["there"]
    assert there["setting"] == ["batching:16"] and there["speedup"]["expected"] < 3
    assert there["speedup"]["expected"] == pytest.approx(
        there["latency_us"]["expected"] / answer["predicted"]["latency_us"]["expected"], rel=1e-3
    )
    assert answer["speedup"]["expected"] > 8
    text = CliRunner().invoke(main, ["predict", str(DECODE), "--batch-size", "16", "--apply", "half-precision:fp16"])
    assert "per step without it at batch 16" in " ".join(text.output.split()) and "in all" in text.output


def test_another_gpu_is_composed_with_optimizations():
    moved = as_json(PREFILL, "--gpu", "t4")
    halved = as_json(PREFILL, "--gpu", "t4", "--apply", "half-precision:fp16")
    assert (moved["applied"], moved["gpu"]) == (["gpu:t4"], "t4")
    assert halved["applied"] == ["gpu:t4", "half-precision:fp16"]
    assert moved["speedup"]["high"] < 0.5
    assert halved["speedup"]["expected"] > 1.5 * moved["speedup"]["expected"]
    assert {each["id"]: each["reason"] for each in moved["considered"]}["tf32"].startswith("NVIDIA T4 has no TF32")


def test_bf16_on_a_gpu_without_it_is_a_caveat_and_fp16_the_way_out():
    trace = TRACES / "h200_llama-1b_prefill.json.gz"
    moved = tracekit.predict(trace, gpu="t4")
    assert any("no bf16" in caveat for caveat in moved.caveats)
    there = tracekit.predict(trace, "half-precision", gpu="t4")
    assert there.applied == ("gpu:t4", "half-precision")
    assert not any("no bf16" in caveat for caveat in there.caveats)
    assert there.speedup.expected > 2 * moved.speedup.expected
    assert there.memory == moved.memory
    assert "float16" in there.how_to[1]


def test_what_cannot_be_done_is_explained():
    for words, expected in {
        ("--apply", "int8-weight-only"): "16 bits",
        ("--apply", "half"): "Nearest: half-precision",
        ("--apply", "compile+max-autotune"): "cannot be combined",
        ("--apply", "batching:2", "--batch-size", "4"): "twice",
        ("--gpu", "p4000"): "not known",
    }.items():
        result = invoke(DECODE, *words)
        assert (result.exit_code, expected in result.stderr) == (1, True), result.stderr


def test_what_does_not_fit_is_refused_with_the_numbers():
    result = invoke(TRACES / "h200_mistral-7b_decode.json.gz", "--gpu", "t4", "--batch-size", "64")
    assert result.exit_code == 1
    assert "A batch of 64 does not fit: 16 GB hold one of 9." in result.stderr


@pytest.mark.parametrize("words", [("predict", DECODE), ("verify", "run"), ("analyze", DECODE)])
def test_an_option_is_not_ignored_where_it_is_given_twice(words):
    option = "--gpu" if words[0] == "analyze" else "--apply"
    twice = [option, "compile", option, "cuda-graphs"]
    result = CliRunner().invoke(main, [*map(str, words), *twice], prog_name="tracekit")
    assert result.exit_code == 2
    assert f"{option} is given twice, and takes one value." in result.output
    assert f"Usage: tracekit {words[0]}" in result.output


def test_nothing_is_predicted_without_a_gpu(shared):
    with pytest.raises(InputError, match="no GPU work"):
        tracekit.predict(shared / "traces/cpu_only.json.gz", "compile")


def test_the_text_says_it_all(tmp_path):
    target = tmp_path / "prediction.txt"
    result = invoke(DECODE, "-o", target)
    assert result.exit_code == 0
    text = target.read_text()
    for part in ("speed-up", "memory", "check", "host and gaps", "The best plan", "Each alone", "llm-int8"):
        assert part in text
    again = tracekit.predict(DECODE)
    assert to_dict(again) == as_json(DECODE)


def test_the_schema_describes_every_field():
    jsonschema.Draft202012Validator.check_schema(schema("prediction"))
    wrong = to_dict(tracekit.predict(DECODE, "compile")) | {"surprise": 1}
    with pytest.raises(jsonschema.ValidationError, match="surprise"):
        jsonschema.validate(wrong, schema("prediction"))


def test_what_links_of_another_gpu_leave_of_collectives_is_said(shared):
    told = tracekit.predict(shared / "traces" / "a100_resnet-ddp_nccl.json.gz", gpu="h100-sxm").caveats
    assert "Collectives keep the time that they waited for other ranks." in told
    assert not any("Collectives" in each for each in tracekit.predict(DECODE, gpu="a100-80gb-sxm").caveats)


HOSTILE = ("x; touch EXECUTED #", "$(touch EXECUTED)", "a\n`b`", "'; b '", "--trust-remote-code", "\u202eb")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_models_name_in_a_command_is_one_word(tmp_path, name):
    """A reader may copy the command into a shell."""
    document = json.loads(gzip.decompress(DECODE.read_bytes()))
    document["tracekit"]["model"] = name
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    (repeated,) = tracekit.predict(path, apply="batching").how_to
    words = shlex.split(repeated, comments=True)
    assert words[:3] + words[4:] == ["tracekit", "profile", "--model", "--batch-size", words[-1]]
    served = SimpleNamespace(source=SimpleNamespace(capture=SimpleNamespace(model=name)))
    assert shlex.split(find("paged-kv").how_to(served), comments=True) == ["vllm", "serve", words[3]]
    assert words[3].removeprefix("./") == printable(name)
    assert not words[3].startswith("-")
