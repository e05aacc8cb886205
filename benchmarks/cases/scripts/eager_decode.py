"""GPT-2 answers one user, a token at a time, each kernel launched by Python; in the fixed variant, one graph on a
static cache."""

from collections.abc import Iterator

import torch
from transformers import DynamicCache, StaticCache

from .models import gpt2, graph_of, tokens


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    model = gpt2(tiny).to(device, torch.bfloat16).eval()
    cache = StaticCache(config=model.config, max_cache_len=1024) if fixed else DynamicCache(config=model.config)
    token = model(tokens(1, 64, device), past_key_values=cache).logits[:, -1:].argmax(-1)

    def decode() -> None:
        token.copy_(model(token, past_key_values=cache).logits[:, -1:].argmax(-1))

    step = graph_of(decode, device) if fixed else decode
    text = [token.clone()]
    while len(text) < 900:
        step()
        text.append(token.clone())
        yield 1
