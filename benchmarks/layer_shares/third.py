"""The third set: architectures of Hugging Face that tracekit does not bundle, and a GPT written from scratch."""

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from scratch_gpt import ScratchGPT
from torch import Tensor, nn

Built = tuple[nn.Module, Tensor | Mapping[str, Tensor]]


def decoder(tiny: bool) -> Built:
    layers, width, vocabulary = (2, 64, 500) if tiny else (8, 2048, 100_352)
    config = transformers.Olmo2Config(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32 if tiny else 16,
        num_key_value_heads=width // 32 if tiny else 16,
        use_cache=False,
    )
    tokens = torch.randint(vocabulary, (1, 64) if tiny else (4, 1024))
    return transformers.Olmo2ForCausalLM(config).bfloat16(), {"input_ids": tokens, "labels": tokens}


def encoder(tiny: bool) -> Built:
    config = transformers.ElectraConfig(vocab_size=30_522, **_narrow(tiny, embedding_size=768, hidden_size=768))
    tokens = torch.randint(config.vocab_size, (1, 32) if tiny else (32, 256))
    labels = torch.zeros(len(tokens), dtype=torch.long)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}
    return transformers.ElectraForSequenceClassification(config), inputs


def translator(tiny: bool) -> Built:
    sizes: dict[str, Any] = {"d_model": 64 if tiny else 768}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2 if tiny else 6, f"{side}_attention_heads": 2 if tiny else 12}
        sizes |= {f"{side}_ffn_dim": 128 if tiny else 3072}
    config = transformers.BartConfig(use_cache=False, **sizes)
    tokens = torch.randint(3, config.vocab_size, (1, 32) if tiny else (16, 256))
    return transformers.BartForConditionalGeneration(config).bfloat16(), {"input_ids": tokens, "labels": tokens}


def images(tiny: bool) -> Built:
    config = transformers.EfficientNetConfig(
        image_size=64 if tiny else 224,
        width_coefficient=0.25 if tiny else 1.0,
        depth_coefficient=0.5 if tiny else 1.0,
        hidden_dim=320 if tiny else 1280,
        num_labels=1000,
    )
    batch = 2 if tiny else 64
    pixels = torch.randn(batch, 3, config.image_size, config.image_size)
    labels = torch.zeros(batch, dtype=torch.long)
    return transformers.EfficientNetForImageClassification(config), {"pixel_values": pixels, "labels": labels}


def segments(tiny: bool) -> Built:
    depths, widths = ([1, 1, 1, 1], [16, 32, 32, 32]) if tiny else ([3, 4, 6, 3], [64, 128, 320, 512])
    config = transformers.SegformerConfig(depths=depths, hidden_sizes=widths, decoder_hidden_size=widths[-1] + 256)
    size = 64 if tiny else 512
    return transformers.SegformerForSemanticSegmentation(config), torch.randn(1 if tiny else 8, 3, size, size)


def speech(tiny: bool) -> Built:
    config = transformers.HubertConfig(**_narrow(tiny, hidden_size=768), apply_spec_augment=False)
    return transformers.HubertModel(config).half(), torch.randn(1 if tiny else 8, 16_000 * (1 if tiny else 10)).half()


def script(tiny: bool) -> Built:
    layers, width, length, vocabulary = (2, 64, 64, 500) if tiny else (12, 768, 1024, 50_304)
    return ScratchGPT(layers, width, length, vocabulary), torch.randint(vocabulary, (1 if tiny else 8, length))


def _narrow(tiny: bool, **widths: int) -> dict[str, int]:
    """Return the sizes of a base encoder, or of a small one."""
    if not tiny:
        return widths | {"num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    return dict.fromkeys(widths, 64) | {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
