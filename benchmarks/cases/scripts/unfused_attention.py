"""A Llama reads prompts of 4,096 tokens with attention written out: the scores of all pairs go through memory."""

from collections.abc import Iterator

import torch

from .models import llama, tokens


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    prompts = tokens(2, 64 if tiny else 4096, device)
    model = llama(tiny, attn_implementation="sdpa" if fixed else "eager").to(device, torch.bfloat16).eval()
    while True:
        model(prompts, use_cache=False)
        yield prompts.numel()
