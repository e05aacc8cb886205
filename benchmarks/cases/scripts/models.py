"""Models of the scripts: usual architectures with random weights. `tiny` is for a test on a CPU."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

_TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_WIDTHS = [64, 128, 256, 512]


def gpt2(tiny: bool, **changes: Any) -> GPT2LMHeadModel:
    """GPT-2 small with its vocabulary padded to 50,304, and without dropout."""
    size = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 512} if tiny else {"vocab_size": 50_304}
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    return GPT2LMHeadModel(GPT2Config(**size | no_dropout | changes))


def bert(tiny: bool, layers: int = 12) -> BertModel:
    """Return BERT without a padding token, which transformers would search for in every input, waiting for the GPU."""
    size = _TINY if tiny else {"num_hidden_layers": layers}
    return BertModel(BertConfig(pad_token_id=None, **size))


def llama(tiny: bool, **changes: Any) -> LlamaModel:
    """Return eight layers as wide as those of a model with one billion parameters."""
    size = {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "intermediate_size": 2816}
    return LlamaModel(LlamaConfig(**(_TINY if tiny else size) | changes))


def vit(tiny: bool, **changes: Any) -> ViTForImageClassification:
    return ViTForImageClassification(ViTConfig(**(_TINY if tiny else {}) | changes))


def resnet(tiny: bool) -> ResNetForImageClassification:
    """ResNet-34."""
    size = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]} if tiny else {"hidden_sizes": _WIDTHS}
    return ResNetForImageClassification(ResNetConfig(num_labels=1000, layer_type="basic", **size))


def tokens(batch: int, length: int, device: str, vocabulary: int = 512) -> torch.Tensor:
    return torch.randint(vocabulary, (batch, length), device=device)


def graph_of(step: Callable[[], Any], device: str) -> Callable[[], Any]:
    """Return a function that replays the step as one CUDA graph; on a CPU, the step itself."""
    if device == "cpu":
        return step
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def pinned(tensor: torch.Tensor, device: str) -> torch.Tensor:
    return tensor if device == "cpu" else tensor.pin_memory()
