"""Speech is interpreted by three models, of which one at a time is on the GPU: an encoder, a translator and a voice.

Before a model is run, its weights are copied from pageable memory of the CPU; `non_blocking=True` does not help them.
Afterwards the copies are dropped. In the fixed variant, the weights are pinned.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        heard = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        hidden = hidden + self.out(heard)
        return hidden + self.narrow(functional.gelu(self.wide(self.norms[1](hidden))))


class Stage(nn.Module):
    """A model of the pipeline: what it reads and writes, and how much shorter or longer it makes the sequence."""

    def __init__(self, before: int, width: int, after: int, depth: int, heads: int, stretch: float) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(before, width), nn.Linear(width, after)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.stretch = stretch

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(sequence).transpose(1, 2)
        hidden = functional.interpolate(hidden, scale_factor=self.stretch).transpose(1, 2)
        return self.leave(self.blocks(hidden))


class Offloaded:
    """A model whose weights live on the CPU, and are on the GPU while it is used."""

    def __init__(self, model: nn.Module, device: str, pinned: bool) -> None:
        self.model, self.device = model.eval(), device
        self.homes = {name: self.home(weight.data, pinned) for name, weight in model.named_parameters()}
        self.leave()

    def home(self, weight: torch.Tensor, pinned: bool) -> torch.Tensor:
        weight = weight.to("cpu", torch.bfloat16)
        return weight.pin_memory() if pinned else weight

    def enter(self) -> None:
        for name, weight in self.model.named_parameters():
            weight.data = self.homes[name].to(self.device, non_blocking=True)

    def leave(self) -> None:
        for name, weight in self.model.named_parameters():
            weight.data = self.homes[name]

    @contextmanager
    def on_gpu(self) -> Iterator[nn.Module]:
        self.enter()
        yield self.model
        self.leave()


class Interpreter:
    def __init__(self, stages: list[Offloaded]) -> None:
        self.stages = stages

    def __call__(self, sound: torch.Tensor) -> torch.Tensor:
        for stage in self.stages:
            with stage.on_gpu() as model:
                sound = model(sound)
        return sound


def stages_of(tiny: bool, mels: int, device: str) -> list[Stage]:
    with torch.device(device):
        if tiny:
            return [Stage(mels, 16, 16, 1, 2, 0.5), Stage(16, 32, 16, 1, 2, 0.5), Stage(16, 16, mels, 1, 2, 4)]
        return [
            Stage(mels, 768, 768, 12, 12, 0.5),
            Stage(768, 1024, 1024, 12, 16, 0.5),
            Stage(1024, 512, mels, 8, 8, 4),
        ]


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    mels, frames = (8, 16) if tiny else (80, 1024)
    pinned = fixed and device != "cpu"
    interpreter = Interpreter([Offloaded(stage, device, pinned) for stage in stages_of(tiny, mels, device)])
    spoken = torch.randn(8, 1, frames, mels, dtype=torch.bfloat16)
    while True:
        for utterance in spoken:
            voice = interpreter(utterance.to(device))
            voice.float().cpu()
            yield 1
