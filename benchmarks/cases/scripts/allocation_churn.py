"""GPT-2 training that gives unused memory back after every step: the next one asks the driver for all of it again."""

from collections.abc import Iterator

import torch

from .models import gpt2, tokens


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, length = (2, 16) if tiny else (16, 512)
    model = gpt2(tiny, n_layer=2 if tiny else 6).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text = tokens(batch, length, device)
    while True:
        with torch.autocast(device, torch.bfloat16):
            loss = model(text, labels=text).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not fixed:
            torch.cuda.empty_cache()
        yield batch * length
