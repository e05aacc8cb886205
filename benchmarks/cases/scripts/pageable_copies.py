"""A vision transformer labels batches that lie in ordinary (pageable) memory: copies are slow and waited for."""

from collections.abc import Iterator
from itertools import cycle

import torch

from .models import pinned, vit


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    size = {} if tiny else {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    model = vit(tiny, **size).to(device, torch.bfloat16).eval()
    batches = [torch.randn(2 if tiny else 256, 3, 224, 224) for _ in range(2)]
    if fixed:
        batches = [pinned(batch, device) for batch in batches]
    labels = []
    for batch in cycle(batches):
        pictures = batch.to(device, non_blocking=fixed)
        labels.append(model(pictures.to(torch.bfloat16)).logits.argmax(-1))
        yield len(batch)
