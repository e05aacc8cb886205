"""What captured runs hold, counted from the dims of their models."""

from pathlib import Path

import pytest

import tracekit

TRACES = Path(__file__).parents[2] / "examples/traces"


def held(name):
    return tracekit.analyze(TRACES / f"h200_{name}.json.gz").predicted_from.memory


@pytest.mark.parametrize(
    ("name", "layers", "kv_heads", "head_dim", "element"),
    [
        ("gpt2_decode", 12, 12, 64, 4),
        ("gpt2_decode_eager_for-t4", 12, 12, 64, 4),
        ("llama-1b_decode", 16, 8, 64, 2),
        ("mistral-7b_decode", 32, 8, 128, 2),
        ("qwen2-0.5b_decode", 24, 2, 64, 2),
    ],
)
def test_decoding_holds_keys_and_values_of_512_tokens_and_its_own(name, layers, kv_heads, head_dim, element):
    assert held(name).kv_cache == 2 * layers * kv_heads * 513 * head_dim * element


def test_an_encoder_has_no_cache():
    assert held("bert_prefill").kv_cache == 0


@pytest.mark.parametrize("name", ["gpt2_prefill", "gpt2_decode", "bert_prefill", "mistral-7b_decode", "gpt2_train"])
def test_the_peak_is_the_measured_one(name):
    capture = tracekit.load(TRACES / f"h200_{name}.json.gz").metadata.capture
    memory = held(name)
    assert memory.peak == capture.peak_memory_bytes
    assert memory.weights == capture.weight_bytes


def test_training_holds_gradients_and_adams_moments_beside_the_weights():
    memory = held("gpt2_train")
    assert memory.gradients == memory.weights == 4 * 124_439_808
    assert memory.optimizer_state == 2 * memory.weights
    # At batch 1 the optimizer's step needs more than the end of the forward pass.
    assert memory.temporaries + memory.gradients > memory.activations > 0


def test_a_fused_optimizer_needs_no_temporaries():
    after = tracekit.predict(TRACES / "h200_gpt2_train.json.gz", "fused-optimizer")
    assert after.memory.temporaries == 0
    assert after.memory.peak == after.memory.weights * 3 + after.memory.activations + after.memory.workspaces
