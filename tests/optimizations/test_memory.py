"""The memory of captured runs, counted from the dims of their models."""

from pathlib import Path

import pytest

import tracekit

pytestmark = pytest.mark.usefixtures("started_once")
ROOT = Path(__file__).parents[2]
TRACES = ROOT / "examples/traces"


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
    # At batch 1 the optimizer's step needs more than the loss.
    assert memory.temporaries + memory.gradients > memory.activations + memory.loss


def test_a_loss_of_gpt2_makes_two_gradients_of_the_logits_and_its_table_has_two_of_its_own():
    memory = held("gpt2_train")
    assert memory.loss == 2 * 512 * 50_257 * 4
    assert memory.tied_gradients == 2 * 768 * 50_257 * 4


def test_gpt2_keeps_what_autograd_saves():
    tokens, width, vocabulary = 512, 768, 50_257
    norm = 4 * tokens * (width + 2)  # its input, a mean and a deviation a row
    attention = 4 * tokens * (3 * width + width + 12)  # queries, keys, values, the output, a number a head and row
    activation = 5 * 4 * tokens * 4 * width  # x, x / 2, the tangent, 1 more, and their product
    dropouts = 2 * tokens * width  # masks
    products = 4 * tokens * 2 * width  # the inputs of two: those of the others are counted
    blocks = 12 * (2 * norm + attention + activation + dropouts + products)
    outside = tokens * width + norm + 4 * tokens * width + 4 * tokens * vocabulary
    assert held("gpt2_train").activations == blocks + outside


def test_a_fused_optimizer_needs_no_temporaries():
    after = tracekit.predict(TRACES / "h200_gpt2_train.json.gz", "fused-optimizer").memory
    assert after.temporaries == 0
    assert after.peak == 3 * after.weights + after.activations + after.loss + after.workspaces
    assert after.peak == pytest.approx(2_415_082_496, rel=0.005)  # measured


@pytest.mark.parametrize(
    ("trace", "batch", "measured"),
    [
        ("examples/traces/h200_gpt2_train", 4, 4_983_974_912),
        ("examples/traces/h200_gpt2_train", 16, 15_173_051_392),
        ("benchmarks/data/h200_runs/bert-train-fp32-sdpa-b1", 4, 3_427_414_528),
        ("benchmarks/data/h200_runs/bert-train-fp32-sdpa-b1", 16, 9_506_025_984),
    ],
)
def test_larger_batches_need_what_was_measured(trace, batch, measured):
    after = tracekit.predict(ROOT / f"{trace}.json.gz", f"batching:{batch}").memory
    assert after.peak == pytest.approx(measured, rel=0.01)


def test_checkpointed_training_of_gpt2_is_held_by_its_loss():
    after = tracekit.predict(TRACES / "h200_gpt2_train.json.gz", "gradient-checkpointing", batch_size=16).memory
    logits = 4 * 16 * 512 * 50_257
    assert after.loss == 2 * logits
    # Log-probabilities, the inputs of twelve blocks, of the last norm and of the head; a mask, a mean and a deviation.
    assert after.activations == logits + 16 * 512 * (4 * 14 * 768 + 768 + 8)
