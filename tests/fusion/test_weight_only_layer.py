"""Products of a decoder layer with their norm, gate and residual, in Triton's interpreter or on a GPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tracekit.fuse import proof

proof.interpret_without_gpu()
from tracekit.fuse.kernels import weight_only_layer as kernel
from tracekit.fuse.kernels import weight_only_product as plain

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("biased", [False, True])
def test_a_gated_product_of_normed_inputs(bits, biased):
    x, packed, scale, _, _ = plain.example(torch.float32, DEVICE, 2, 64, 256, bits)
    bias = torch.randn(64, device=DEVICE) if biased else None
    options = {"squares": torch.rand(2, 3, device=DEVICE) * 256, "epsilon": 1e-5, "gated": True}
    out, expected = (each(x, packed, scale, bias, bits, **options) for each in (kernel.fused, kernel.reference))
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


def test_a_product_with_its_residual_and_the_next_gain():
    x, packed, scale, _, _ = plain.example(torch.float32, DEVICE, 1, 64, 256)
    options = {"residual": torch.randn(1, 64, device=DEVICE), "gain": torch.randn(64, device=DEVICE)}
    out, expected = (each(x, packed, scale, **options) for each in (kernel.fused, kernel.reference))
    torch.testing.assert_close(out[:2], expected[:2], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(out[2].sum(1, keepdim=True), expected[2], rtol=1e-4, atol=1e-4)


def test_a_quantized_model_decodes_as_before(monkeypatch):
    transformers = pytest.importorskip("transformers")
    from tracekit.fuse.kernels import packed_projections
    from tracekit.quantization import fuse_decoder, quantize

    monkeypatch.setattr("tracekit.fuse.kernels.decode_attention._runs_on", lambda _: True)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=2, vocab_size=50)
    model = quantize(transformers.LlamaForCausalLM(config).eval().to(DEVICE), "int4")
    for name, gain in model.named_parameters():
        if "norm" in name:
            gain.data.uniform_(0.5, 1.5)
    tokens = torch.arange(6, device=DEVICE)[None]
    before, cache = (transformers.StaticCache(config=config, max_cache_len=9) for _ in range(2))
    with torch.no_grad():
        expected = model(tokens, past_key_values=before).logits
        fuse_decoder(packed_projections.apply(model))
        model(tokens[:, :5], past_key_values=cache)
        calls, fused = [], kernel.fused
        monkeypatch.setattr(kernel, "fused", lambda *given, **options: calls.append(given) or fused(*given, **options))
        logits = model(tokens[:, 5:], past_key_values=cache).logits
    torch.testing.assert_close(logits, expected[:, 5:], rtol=1e-3, atol=1e-3)
    assert len(calls) == 8
    for layer, same in zip(cache.layers, before.layers, strict=True):
        assert int(layer.cumulative_length) == 6
        torch.testing.assert_close(layer.keys, same.keys, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(layer.values, same.values, rtol=1e-3, atol=1e-3)


def test_a_model_without_packed_layers_cannot_be_fused():
    from tracekit.analyzers.core import InputError
    from tracekit.quantization import fuse_decoder

    with pytest.raises(InputError, match="no decoder layers that can be fused"):
        fuse_decoder(torch.nn.Sequential(torch.nn.Linear(64, 64)))
