"""BERT embeds documents in float32, with TF32 off as PyTorch has it; in the fixed variant, in bfloat16."""

from collections.abc import Iterator

import torch

from .models import bert, tokens


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    documents = tokens(2 if tiny else 32, 16 if tiny else 256, device)
    model = bert(tiny).to(device, torch.bfloat16 if fixed else torch.float32).eval()
    embeddings = []
    while True:
        embeddings.append(model(documents).pooler_output)
        yield len(documents)
