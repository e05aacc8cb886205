"""Attention of one token, in Triton's interpreter or on a GPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tracekit.fuse import proof

proof.interpret_without_gpu()
from tracekit.fuse.kernels import decode_attention as kernel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"batch": 2, "heads": 4, "shared": 4, "keys": 63, "size": 96},
        {"batch": 3, "heads": 16, "shared": 1, "keys": 300, "size": 128},
    ],
)
def test_parts_of_the_keys_add_up(sizes, masked):
    q, k, v, mask = kernel.example(torch.float32, DEVICE, **sizes)
    mask = mask if masked else None
    for _ in range(2):  # the first call leaves no count behind
        torch.testing.assert_close(kernel.fused(q, k, v, mask), kernel.reference(q, k, v, mask), rtol=1e-4, atol=1e-4)


def test_a_block_may_read_several_tiles_of_keys(monkeypatch):
    monkeypatch.setattr(kernel, "_BLOCKS", 4)
    q, k, v, mask = kernel.example(torch.float32, DEVICE, keys=500)
    mask[..., :128] = False  # nothing is seen in the first tiles
    torch.testing.assert_close(kernel.fused(q, k, v, mask), kernel.reference(q, k, v, mask), rtol=1e-4, atol=1e-4)


def test_a_model_attends_as_before():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=50)).eval()
    model, tokens = model.to(DEVICE), torch.arange(6, device=DEVICE)[None]
    with torch.no_grad():
        before = model(tokens).logits
        cache = kernel.apply(model)(tokens[:, :5], use_cache=True).past_key_values
        after = model(tokens[:, 5:], past_key_values=cache).logits
        torch.testing.assert_close(after, before[:, 5:], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(kernel.remove(model)(tokens).logits, before)
