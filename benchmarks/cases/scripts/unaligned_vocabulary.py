"""A GPT-2 of four layers is trained in bfloat16 with its usual vocabulary of 50,257: an odd leading dimension."""

from collections.abc import Iterator

import torch

from .models import gpt2, tokens


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, length = (2, 16) if tiny else (8, 1024)
    model = gpt2(tiny, vocab_size=509 if tiny else 50_257, n_layer=2 if tiny else 4)
    if fixed:
        model.resize_token_embeddings(pad_to_multiple_of=64, mean_resizing=False)
    model = model.to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text = tokens(batch, length, device)
    while True:
        model(text, labels=text).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield batch * length
