"""GPT-2 is trained in float32, with TF32 off as PyTorch has it; in the fixed variant, under autocast."""

from collections.abc import Iterator

import torch

from .models import gpt2, tokens


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, length = (2, 16) if tiny else (8, 512)
    model = gpt2(tiny, n_layer=2 if tiny else 6).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text = tokens(batch, length, device)
    while True:
        with torch.autocast(device, torch.bfloat16, enabled=fixed):
            loss = model(text, labels=text).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield batch * length
