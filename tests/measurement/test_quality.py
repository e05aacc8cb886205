"""`--eval`: quality beside speed, on trained weights, by a text, by tokens, or by a function."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from tiny_models import write_model
from transformers import AutoConfig, AutoModelForCausalLM

from tracekit.analyzers.core import InputError, Interval
from tracekit.apply import Subject
from tracekit.cli import main
from tracekit.measure import evaluation_of, from_csv, quality
from tracekit.measure.quality import Evaluation, _change, _perplexity, check, judged
from tracekit.quantization import load
from tracekit.run import Settings

PATTERN = [7, 3, 9, 1, 5, 2, 8, 4] * 40


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model that was trained on a repeated pattern, without a tokenizer, and the pattern as tokens."""
    folder = write_model(tmp_path_factory.mktemp("trained") / "llama", "llama")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    tokens, optimizer = torch.tensor([PATTERN[:64]]), torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(15):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    (folder / "pattern.json").write_text(json.dumps(PATTERN))
    return folder


@pytest.fixture(scope="module")
def run(trained):
    return profiled(trained, trained.parent / "run", "--weights", "pretrained")


def profiled(model, folder, *more):
    command = ["profile", "--model", str(model), "--seq-len", "8", "--device", "cpu", "--dtype", "fp32", "--steps", "1"]
    done = CliRunner().invoke(main, [*command, *more, "-o", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def verified(run, given, apply="half-precision"):
    command = ["verify", str(run), "--apply", apply, "--max-seconds", "2", "--eval", str(given)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    (result,) = json.loads((run / "analysis.json").read_text())["verified"]
    return result, done.stdout


@pytest.mark.usefixtures("same_process")
def test_perplexity_of_tokens_before_and_after_stands_in_data_text_and_page(run, trained):
    half, text = verified(run, trained / "pattern.json")
    quality = half["quality"]
    assert (quality["by"], quality["measure"], quality["items"]) == ("pattern.json", "perplexity", 5 * 63)
    assert 1 < quality["before"] < 10  # of 100 tokens
    change = quality["change"]
    assert change["low"] < change["expected"] < change["high"]
    assert change["expected"] == pytest.approx(quality["after"] - quality["before"], abs=1e-3)
    assert 0.9 < quality["agreement"] <= 1 and 0 < quality["kl"] < 0.1
    assert "perplexity" in text and "pattern.json" in text and "95 % interval" in text
    assert "pattern.json</bdi>" in (run / "report.html").read_text()


@pytest.mark.usefixtures("same_process")
def test_a_function_scores_both_models(run, tmp_path, monkeypatch):
    (tmp_path / "my_scores.py").write_text(
        "def several(model):\n    return [float(model.dtype.itemsize + each) for each in range(30)]\n"
        "def one(model):\n    return model.dtype.itemsize\n"
        "def broken(model):\n    raise ValueError('no data here')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    several = verified(run, "my_scores:several")[0]["quality"]
    assert several["measure"] == "score" and (several["before"], several["after"]) == (18.5, 16.5)
    assert several["change"] == {"low": -2.0, "expected": -2.0, "high": -2.0}  # the pairs all change alike
    one = verified(run, "my_scores:one")[0]["quality"]
    assert (one["before"], one["after"], one["change"], one["kl"]) == (4, 2, None, None)
    broken = verified(run, "my_scores:broken")[0]
    assert broken["quality"] is None and broken["measured"]
    assert any("my_scores:broken failed. ValueError: no data here" in line for line in broken["caveats"])


@pytest.mark.usefixtures("same_process")
def test_random_weights_are_timed_only(trained, tmp_path):
    half, text = verified(profiled(trained, tmp_path / "run"), trained / "pattern.json")
    assert half["measured"] and half["quality"] is None
    assert "Speed only: the weights are random" in text and "perplexity" not in text


@pytest.mark.usefixtures("same_process")
def test_a_bench_judges_trained_weights_and_only_times_random_ones(trained, tmp_path):
    command = ["bench", "--model", str(trained), "--seq-len", "8", "--device", "cpu", "--dtype", "fp32,bf16"]
    command += ["--apply", "none", "--eval", str(trained / "pattern.json"), "--max-seconds", "2"]
    done = CliRunner().invoke(main, [*command, "--weights", "pretrained", "-o", str(tmp_path / "trained")])
    first, half = from_csv(tmp_path / "trained" / "bench.csv")
    assert done.exit_code == 0 and first.perplexity < 10 and first.text_agreement == 1 and first.text_kl == 0
    assert half.perplexity == pytest.approx(first.perplexity + half.change) and half.change_low < half.change_high
    assert "perplexity" in done.stdout and "Speed only" not in done.stdout
    done = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "random")])
    assert all(each.latency_us and each.perplexity is None for each in from_csv(tmp_path / "random" / "bench.csv"))
    assert "Speed only: the weights are random" in done.stdout


@pytest.mark.usefixtures("same_process")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nosuch.txt", "nosuch.txt cannot be read as text."),
        ("floats.npy", "does not hold two or more integers"),
        ("words.json", "words.json cannot be read as token ids."),
        ("large.json", "It holds the id 100; the model has 100 tokens."),
        ("some.txt", "llama has no tokenizer."),
        ("nosuch:function", "ModuleNotFoundError: No module named 'nosuch'"),
        ("json:nosuch", "AttributeError"),
    ],
)
def test_what_cannot_judge_is_refused_before_anything_is_measured(run, tmp_path, monkeypatch, given, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    np.save("floats.npy", np.ones(3))
    for name, content in {"words.json": '["a"]', "large.json": "[1, 100]", "some.txt": "Some text."}.items():
        (tmp_path / name).write_text(content)
    done = CliRunner().invoke(main, ["verify", str(run), "--apply", "half-precision", "--eval", given])
    assert done.exit_code == 1 and said in done.stderr and "measuring" not in done.stderr


@pytest.mark.parametrize(
    ("model", "workload", "said"), [("bert", "prefill", "predict"), ("llama", "train", "training")]
)
def test_what_predicts_no_tokens_or_trains_has_no_perplexity(trained, model, workload, said):
    built = AutoModelForCausalLM.from_pretrained(trained).eval() if model == "llama" else torch.nn.Linear(1, 1)
    if model == "bert":
        built.config = AutoConfig.from_pretrained(write_model(trained.parent / model, model))
    subject = Subject(model=built, settings=Settings(model=model, workload=workload, weights="pretrained"))
    with pytest.raises(InputError, match=said):
        check(subject, Evaluation("some", text="Some."))


def test_too_little_memory_for_the_logits_costs_no_measurement(trained, monkeypatch):
    def too_large(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    model = AutoModelForCausalLM.from_pretrained(trained).eval()
    options = {"device": "cpu", "dtype": "fp32", "weights": "pretrained"}
    subject = Subject(model=model, settings=Settings(model=str(trained), **options))
    ids = Evaluation("ids", ids=tuple(PATTERN))
    found, why = judged(subject, subject, ids)
    assert not why and (found.agreement, found.kl, found.change) == (1, 0, Interval(0, 0, 0))
    monkeypatch.setattr(quality, "_logits", too_large)
    assert judged(subject, subject, ids) == (None, "The quality was not measured. CUDA out of memory.")


def test_a_pickled_array_is_not_loaded(tmp_path):
    class Executes:
        def __reduce__(self):
            return Path.touch, (tmp_path / "executed",)

    np.save(tmp_path / "ids.npy", np.array([Executes()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read as token ids"):
        evaluation_of(str(tmp_path / "ids.npy"))
    assert not (tmp_path / "executed").exists()


def test_the_interval_of_a_change_holds_the_true_one():
    """The losses of both models share most of their spread, which pairs cancel."""
    generator = np.random.default_rng(1)
    inside = 0
    for _ in range(20):
        before = generator.normal(2.0, 1.0, 2000)
        found = _change(before, before + generator.normal(0.01, 0.05, 2000), _perplexity, 32)
        inside += found.low <= _perplexity(2.01) - _perplexity(2.0) <= found.high
        assert found.high - found.low < 0.1
    assert inside >= 17


def quantized(trained, folder, *more):
    command = ["quantize", "--model", str(trained), "--device", "cpu", "--group-size", "32", *more]
    return CliRunner().invoke(
        main, [*command, "--eval", str(trained / "pattern.json"), "-o", str(folder / "q.safetensors")]
    )


def test_quantize_judges_what_it_writes(trained, tmp_path):
    done = quantized(trained, tmp_path, "--to", "int4")
    assert done.exit_code == 0, done.output
    assert "perplexity" in done.stdout and "pattern.json" in done.stdout and "in 16 bits, now" in done.stdout
    plain, again = (AutoModelForCausalLM.from_pretrained(trained, dtype=torch.bfloat16).eval() for _ in range(2))
    inputs, again = torch.tensor([PATTERN[:32]]), load(again, tmp_path / "q.safetensors")
    apart = (again(inputs).logits - plain(inputs).logits).norm() / plain(inputs).logits.norm()
    assert 0 < apart < 0.3


@pytest.mark.parametrize(("to", "said"), [("awq", "has no tokenizer"), ("qat:int8", "Add --train-steps 200")])
def test_quantize_says_what_is_missing(trained, tmp_path, to, said):
    done = quantized(trained, tmp_path, "--to", to)
    assert done.exit_code == 1 and said in done.stderr
    assert not (tmp_path / "q.safetensors").exists()


def test_random_weights_are_quantized_and_not_judged(trained, tmp_path):
    done = quantized(trained, tmp_path, "--to", "qlora:awq", "--weights", "random", "--train-steps", "2")
    assert done.exit_code == 0, done.output
    assert "Nothing is judged: the weights are random." in done.stdout and "perplexity" not in done.stdout
    assert (tmp_path / "q.safetensors").stat().st_size > 1000


@pytest.mark.usefixtures("same_process")
def test_a_bench_measures_what_it_has_trained(trained, tmp_path, monkeypatch):
    """The text is the pattern, by a tokenizer of one token for each character."""
    monkeypatch.setattr(quality, "_tokens", lambda *_: tuple(PATTERN))
    command = ["bench", "--model", str(trained), "--seq-len", "8", "--device", "cpu", "--dtype", "bf16"]
    command += [
        "--apply",
        "none,packed-int4:32,qlora:smoothquant,lora",
        "--weights",
        "pretrained",
        "--max-seconds",
        "1",
    ]
    done = CliRunner().invoke(main, [*command, "--train-steps", "20", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    rows = {row.config: row for row in from_csv(tmp_path / "out" / "bench.csv")}
    assert not any(row.error for row in rows.values()), done.output
    assert rows["bf16+packed-int4:32"].perplexity > rows["bf16"].perplexity
    assert rows["bf16+lora"].perplexity < rows["bf16"].perplexity  # it goes on learning the pattern
    assert rows["bf16+qlora:smoothquant"].text_kl < rows["bf16+packed-int4:32"].text_kl
    done = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "untrained")])
    failed = {row.config for row in from_csv(tmp_path / "untrained" / "bench.csv") if "--train-steps" in row.error}
    assert failed == {"bf16+qlora:smoothquant", "bf16+lora"}
