"""GPT-2 is evaluated; all logits are copied to the CPU, where only the likeliest tokens are asked for."""

from collections import deque
from collections.abc import Iterator

import torch

from .models import gpt2, tokens


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, length = (2, 16) if tiny else (4, 512)
    model = gpt2(tiny).to(device, torch.bfloat16).eval()
    text = tokens(batch, length, device)
    kept: deque[torch.Tensor] = deque(maxlen=8)
    while True:
        logits = model(text).logits
        kept.append(logits.argmax(-1) if fixed else logits.cpu())
        yield batch * length
