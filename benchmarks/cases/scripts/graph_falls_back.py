"""GPT-2 decode under `reduce-overhead`; every conversation starts from a copy of the same prompt's KV cache.

A clone is not marked as a static address, so that the compiled step writes into inputs that may move: CUDA graphs are
skipped ("due to mutated inputs") at every step. In the fixed variant, the tensors of the cache are written in place,
which keeps their addresses, and the compiled step is captured as one CUDA graph.
"""

from collections.abc import Iterator

import torch
from transformers import StaticCache

from .models import gpt2, graph_of, tokens


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    model = gpt2(tiny, n_layer=2 if tiny else 6).to(device, torch.bfloat16).eval()
    prompt, conversation = (StaticCache(config=model.config, max_cache_len=1024) for _ in range(2))
    for cache in (prompt, conversation):
        token = model(tokens(1, 64, device), past_key_values=cache).logits[:, -1:].argmax(-1)
    start_from(prompt, conversation, in_place=fixed)
    compiled = torch.compile(model, mode="default" if fixed else "reduce-overhead")

    def decode() -> None:
        token.copy_(compiled(token, past_key_values=conversation).logits[:, -1:].argmax(-1))

    step = graph_of(decode, device) if fixed else decode
    for _ in range(900):
        step()
        yield 1


def start_from(prompt: StaticCache, conversation: StaticCache, in_place: bool) -> None:
    for known, layer in zip(prompt.layers, conversation.layers, strict=True):
        if in_place:
            layer.keys.copy_(known.keys)
            layer.values.copy_(known.values)
        else:
            layer.keys = known.keys.clone()
            layer.values = known.values.clone()
