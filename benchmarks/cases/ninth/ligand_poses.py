"""Poses of a ligand in a protein are refined by a diffusion model, a few denoising steps for each request.

A helper records a CUDA graph of a function for each set of its arguments that are not tensors. The noise levels are
Python numbers that depend on the request, so that each step records a graph anew. In the fixed variant, they are
tensors, and one graph is replayed.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random

import torch
from torch import nn
from torch.nn import functional

Level = float | torch.Tensor


class Graphed:
    """A function, replayed as CUDA graphs, of which the last ones are kept."""

    def __init__(self, function: Callable[..., torch.Tensor], kept: int = 4) -> None:
        self.function, self.kept = function, kept
        self.recorded: OrderedDict[tuple, tuple[torch.cuda.CUDAGraph, list, torch.Tensor]] = OrderedDict()

    def __call__(self, *given: Level) -> torch.Tensor:
        key = tuple(tuple(each.shape) if isinstance(each, torch.Tensor) else each for each in given)
        if key not in self.recorded:
            if len(self.recorded) >= self.kept:
                self.recorded.popitem(last=False)
            self.recorded[key] = self.record(given)
        graph, inputs, answer = self.recorded[key]
        for place, each in zip(inputs, given, strict=True):
            if isinstance(each, torch.Tensor):
                place.copy_(each)
        graph.replay()
        return answer

    def record(self, given: tuple[Level, ...]) -> tuple[torch.cuda.CUDAGraph, list, torch.Tensor]:
        inputs = [each.clone() if isinstance(each, torch.Tensor) else each for each in given]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self.function(*inputs)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = self.function(*inputs)
        return graph, inputs, answer


class Block(nn.Module):
    """Atoms attend to one another and to the residues of the pocket, at a level of noise."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.level = nn.Linear(width, 2 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ask, self.tell, self.told = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, values: torch.Tensor, parts: int) -> tuple[torch.Tensor, ...]:
        return values.unflatten(-1, (parts, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    def forward(self, atoms: torch.Tensor, pocket: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        scale, shift = self.level(level).chunk(2, -1)
        heard = functional.scaled_dot_product_attention(*self.split(self.qkv(self.norms[0](atoms) * scale + shift), 3))
        atoms = atoms + self.out(heard.transpose(1, 2).flatten(2))
        (asked,), told = self.split(self.ask(self.norms[1](atoms)), 1), self.split(self.tell(pocket), 2)
        heard = functional.scaled_dot_product_attention(asked, *told)
        atoms = atoms + self.told(heard.transpose(1, 2).flatten(2))
        return atoms + self.narrow(functional.gelu(self.wide(self.norms[2](atoms))))


class Denoiser(nn.Module):
    def __init__(self, kinds: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.kinds, self.enter, self.leave = nn.Embedding(kinds, width), nn.Linear(3, width), nn.Linear(width, 3)
        self.level = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))

    def forward(
        self, places: torch.Tensor, kinds: torch.Tensor, pocket: torch.Tensor, noise: Level, next_noise: Level
    ) -> torch.Tensor:
        """Return the places after one step of Euler's method from a level of noise to the next."""
        level = noise if isinstance(noise, torch.Tensor) else torch.full((), noise, device=places.device)
        embedded = self.level(level.log().reshape(1, 1).to(pocket.dtype))
        atoms = self.kinds(kinds) + self.enter((places / (1 + level * level).sqrt()).to(pocket.dtype))
        for block in self.blocks:
            atoms = block(atoms, pocket, embedded)
        slope = self.leave(atoms).float()
        return places + (next_noise - noise) * slope


def levels(strength: float, steps: int) -> list[float]:
    return [strength * 0.4**step for step in range(steps + 1)]


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    poses, atoms, residues, steps = (2, 4, 6, 2) if tiny else (16, 48, 128, 4)
    size = (10, 32, 2, 2) if tiny else (60, 384, 6, 8)
    denoiser = Denoiser(*size).to(device, torch.bfloat16).eval()
    step = denoiser if device == "cpu" else Graphed(denoiser)
    kinds = torch.randint(size[0], (poses, atoms), device=device)
    pocket = torch.randn(poses, residues, size[1], device=device, dtype=torch.bfloat16)
    dice = Random(11)
    while True:
        noise = levels(dice.uniform(2, 20), steps)
        places = torch.randn(poses, atoms, 3, device=device) * noise[0]
        at = torch.tensor(noise).to(device).unbind() if fixed else noise
        for now, after in pairwise(at):
            places = step(places, kinds, pocket, now, after)
        places.cpu()
        yield poses
