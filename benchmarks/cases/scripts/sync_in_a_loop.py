"""BERT embeds documents; a guard after every layer asks at once whether all values are finite."""

from collections.abc import Iterator

import torch

from .models import bert, tokens

CHECKED_TOGETHER = 300


class Guard:
    """`if not finite` waits for the GPU: deferred, the answers stay there and are asked for together."""

    def __init__(self, deferred: bool) -> None:
        self.deferred = deferred
        self.answers: list[torch.Tensor] = []

    def __call__(self, layer: torch.nn.Module, inputs: object, output: torch.Tensor | tuple) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        self.answers.append(hidden.isfinite().all())
        if not self.deferred or len(self.answers) == CHECKED_TOGETHER:
            self.check()

    def check(self) -> None:
        if not torch.stack(self.answers).all():
            raise FloatingPointError("a layer has written NaN or infinity")
        self.answers.clear()


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    documents = tokens(2 if tiny else 32, 16 if tiny else 256, device)
    model = bert(tiny, layers=6).to(device, torch.bfloat16).eval()
    guard = Guard(deferred=fixed)
    for layer in model.encoder.layer:
        layer.register_forward_hook(guard)
    embeddings = []
    while True:
        embeddings.append(model(documents).pooler_output)
        yield len(documents)
