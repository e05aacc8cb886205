"""Attention of one token, in Triton's interpreter or on a GPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tracekit.fuse import proof

proof.interpret_without_gpu()
from tracekit.fuse.kernels import decode_attention
from tracekit.fuse.kernels import token_attention as kernel

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = (
    {"keys": 200, "length": 63},
    {"batch": 2, "heads": 4, "shared": 4, "keys": 31, "size": 96, "length": 0},
    {"batch": 3, "heads": 16, "shared": 1, "keys": 300, "size": 128, "length": 299},
)


def compare(q, k, v, cos, sin, keys, values, length, mask, run=0):
    given = [each.clone() for each in (keys, values, length)]
    out = kernel.fused(q, k, v, cos, sin, keys, values, length, mask, run=run)
    expected = kernel.reference(q, k, v, cos, sin, *given, mask)
    if run:
        expected = expected.reshape(len(q), -1, run // 8, 8).transpose(1, 2).reshape(out.shape)
    for one, other in zip((out, keys, values, length), (expected, *given), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_token_is_rotated_stored_and_attends(sizes, masked):
    *given, mask = kernel.example(torch.float32, DEVICE, **sizes)
    for _ in range(2):  # the first call leaves no count behind, and the second one finds its key
        compare(*given, mask if masked else None)
        given[-1].sub_(1)


def test_a_block_may_read_several_tiles_of_keys(monkeypatch):
    monkeypatch.setattr(kernel, "_BLOCKS", 4)
    *given, mask = kernel.example(torch.float32, DEVICE, keys=500, length=400)
    mask[..., :128] = False  # nothing is seen in the first tiles
    compare(*given, mask, run=32)


def test_a_model_decodes_as_before(monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(decode_attention, "_runs_on", lambda _: True)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=50)).eval()
    model, tokens = model.to(DEVICE), torch.arange(7, device=DEVICE)[None]
    with torch.no_grad():
        expected = model(tokens).logits
        cache = transformers.StaticCache(config=model.config, max_cache_len=9)
        decode_attention.apply(model)(tokens[:, :5], past_key_values=cache)
        calls = []
        fused = kernel.fused
        monkeypatch.setattr(kernel, "fused", lambda *given: calls.append(given) or fused(*given))
        for at in (5, 6):
            logits = model(tokens[:, at : at + 1], past_key_values=cache).logits
            torch.testing.assert_close(logits, expected[:, at : at + 1], rtol=1e-3, atol=1e-3)
    assert len(calls) == 4 and [int(layer.cumulative_length) for layer in cache.layers] == [7, 7]
    assert not any("forward" in module.__dict__ for module in decode_attention.remove(model).modules())
