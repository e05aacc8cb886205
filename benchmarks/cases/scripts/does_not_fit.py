"""GPT-2 with a small vocabulary is trained on 49,152 tokens at once, whose activations fill more than 16 or 24 GB."""

from collections.abc import Iterator

import torch

from .models import gpt2, tokens


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, length = (2, 16) if tiny else (96, 512)
    size = {} if tiny else {"n_layer": 6, "vocab_size": 8192}
    model = gpt2(tiny, use_cache=False, **size).to(device)
    if fixed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text = tokens(batch, length, device)
    while True:
        with torch.autocast(device, torch.bfloat16):
            loss = model(text, labels=text).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield batch * length
