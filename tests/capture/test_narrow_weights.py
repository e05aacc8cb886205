"""Folders whose weights are in 4 or 8 bits open as ordinary models."""

import json

import pytest
import torch
from safetensors.torch import save_file

import tracekit
from tracekit.analyzers.core import InputError
from tracekit.capture import NARROW, from_stored, models, to_stored
from tracekit.quantization import load, save

SIZES = {"vocab_size": 96, "tie_word_embeddings": True}
LLAMA = {
    "model_type": "llama",
    **dict.fromkeys(("hidden_size", "intermediate_size"), 64),
    **dict.fromkeys(("num_attention_heads", "num_key_value_heads", "num_hidden_layers"), 2),
    **SIZES,
}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 2, "n_positions": 64, **SIZES}
IDS = torch.arange(40)[None]


def folder_of(path, config):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def opened(folder, **options):
    return models.build(models.find(str(folder)), weights="pretrained", **options)


def quantized_in(folder, **options):
    """Return the folder's model with random weights, quantized."""
    model = models.build(models.find(str(folder)))
    calibration = [{"input_ids": IDS}] if options["to"] in ("awq", "smoothquant") else ()
    return tracekit.quantize(model, group_size=32, calibration=calibration, **options)


@pytest.mark.parametrize("to", ["int4", "int8", "awq", "smoothquant"])
@pytest.mark.parametrize("config", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_a_folder_of_narrow_weights_opens_as_an_ordinary_model(tmp_path, config, to):
    folder = folder_of(tmp_path / "model", config)
    quantized = quantized_in(folder, to=to)
    save(quantized, folder / "narrow.safetensors")
    with torch.inference_mode():
        plain, narrow = (each(input_ids=IDS).logits for each in (opened(folder), quantized))
    assert {type(each).__name__ for each in opened(folder).modules()}.isdisjoint({"WeightOnlyLinear", "EightBitLinear"})
    torch.testing.assert_close(plain, narrow, atol=0.02 if to == "smoothquant" else 1e-4, rtol=0)
    assert opened(folder, dtype="bf16").dtype == torch.bfloat16


def test_adapters_become_part_of_the_weights(tmp_path):
    folder = folder_of(tmp_path / "model", GPT2)
    adapted = quantized_in(folder, to="none", trainable="lora")
    for name, each in adapted.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(each, std=0.05)
    save(adapted, folder / "adapted.safetensors")
    with torch.inference_mode():
        torch.testing.assert_close(opened(folder)(input_ids=IDS).logits, adapted(input_ids=IDS).logits)


def test_embeddings_in_8_bits_are_unpacked_by_both_ways_of_loading(tmp_path):
    folder = folder_of(tmp_path / "model", LLAMA)
    quantized = quantized_in(folder, to="int8")
    save(quantized, tmp_path / "wide.safetensors")
    save(quantized, folder / "int8.safetensors", embeddings=True)
    assert (folder / "int8.safetensors").stat().st_size < (tmp_path / "wide.safetensors").stat().st_size
    again = load(models.build(models.find(str(folder))), folder / "int8.safetensors")
    assert again.lm_head.weight is again.model.embed_tokens.weight
    with torch.inference_mode():
        plain, packed, exact = (each(input_ids=IDS).logits for each in (opened(folder), again, quantized))
    torch.testing.assert_close(plain, packed, atol=1e-4, rtol=0)
    torch.testing.assert_close(plain, exact, atol=0.01, rtol=0)


@pytest.mark.parametrize("bits", [4, 8])
def test_integers_are_stored_in_their_order(bits):
    integers = torch.arange(-(1 << bits - 1), 1 << bits - 1).reshape(2, -1)
    stored = to_stored(integers, bits)
    assert stored.numel() * 8 == integers.numel() * bits
    assert torch.equal(from_stored(stored).int(), integers.int())


@pytest.mark.parametrize(
    ("layers", "tensors", "says"),
    [
        ({"lm_head": ["nf4", 0, False]}, {}, "bitsandbytes"),
        ({"absent": ["int8", 32, False]}, {"absent.packed": torch.zeros(4, 32).char()}, "another model"),
        ({"lm_head": ["int8", 32, False]}, {"lm_head.packed": torch.zeros(3).char()}, "another model"),
        ({"lm_head": ["int8", 32, False]}, {"lm_head.scale": torch.zeros(3, 1)}, "another model"),
        ({"lm_head": ["int9", 32, False]}, {}, "no quantized model"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, layers, tensors, says):
    folder = folder_of(tmp_path / "model", LLAMA)
    save_file({"x": torch.zeros(1), **tensors}, folder / "model.safetensors", {NARROW: json.dumps(layers)})
    with pytest.raises(InputError, match=says):
        opened(folder)
