"""Rotary embeddings of other families than Llama: neighbours, angles of pairs, parts of heads."""

import importlib
import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import plan
from tracekit.capture import complete as planned
from tracekit.capture import graph_of, steps
from tracekit.fuse import proof, run_kernels
from tracekit.fuse.writing import Written, load, text
from tracekit.run import Settings

H100 = hardware.find("h100")
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "vocab_size": 64}
COMMON = {**SIZES, "num_attention_heads": 4, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
FAMILIES = {
    "glm": ("GlmForCausalLM", {"head_dim": 16, "num_key_value_heads": 2, "attention_dropout": 0.0}),
    "cohere": ("CohereForCausalLM", {"num_key_value_heads": 2}),
    "gpt_neox": ("GPTNeoXForCausalLM", {}),
    "phi": ("PhiForCausalLM", {"resid_pdrop": 0.0}),
    "persimmon": ("PersimmonForCausalLM", {}),
}


@pytest.fixture
def run(tmp_path, request):
    """Return a family's model, and the written kernel of its rotation."""
    kind, workload = request.param
    architecture, more = FAMILIES[kind]
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": kind, "architectures": [architecture], **COMMON, **more})
    )
    asked = {"model": str(tmp_path), "device": "model", "gpu": "h100", "dtype": "fp32", "seq_len": 8}
    rows = plan(graph_of(steps.run(planned(Settings(**asked, workload=workload)), H100).recording), H100)
    (row,) = [row for row in rows if row.pattern == "rotary embedding"]
    assert row.template == "rotary"
    path = run_kernels.write_source(1, row, H100, tmp_path, {})
    return _model(tmp_path), load(path, f"rotary_{kind}_{workload}")


def _model(folder):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager")


def of_all(workload):
    return pytest.mark.parametrize("run", [(kind, workload) for kind in FAMILIES], indirect=True, ids=FAMILIES)


@of_all("prefill")
def test_a_model_computes_the_same(run, monkeypatch):
    model, kernel = run
    model.eval()
    tokens = torch.randint(64, (2, 7))
    with torch.inference_mode():
        expected = model(tokens).logits
        calls = counted(kernel, monkeypatch)
        kernel.apply(model)
        torch.testing.assert_close(model(tokens).logits, expected, atol=1e-5, rtol=1e-4)
        assert calls, "the kernel was not called"
        kernel.remove(model)
        assert torch.equal(model(tokens).logits, expected)


@of_all("train")
def test_a_model_trains_the_same(run):
    model, kernel = run
    tokens = torch.randint(64, (2, 7))

    def gradients():
        model.zero_grad()
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        return [weight.grad.clone() for weight in model.parameters()]

    expected = gradients()
    kernel.apply(model)
    for got, wanted in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-3)


def counted(kernel, monkeypatch):
    calls, run = [], kernel._run
    monkeypatch.setattr(kernel, "_run", lambda *inputs, **options: calls.append(1) or run(*inputs, **options))
    return calls


@pytest.mark.parametrize("paired", [False, True])
def test_a_rotation_of_neighbours_is_proved(tmp_path, paired):
    path = tmp_path / "rotary.py"
    path.write_text(text(Written("rotary", {"INTERLEAVED": True, "PAIRED": paired})))
    kernel = load(path, f"neighbours_{paired}")
    checks = proof.prove(kernel, "rotary", (torch.float32,), trains=True, device="cpu")
    assert proof.failed(checks) == []
    inputs = kernel.example(torch.float32, "cpu")
    halves = importlib.import_module("tracekit.fuse.kernels.rotary").reference(*inputs)
    assert not torch.allclose(kernel.fused(*inputs)[0], halves[0])
