"""GraphSAGE sorts papers into fields by the papers that they cite, and by those which these cite.

The training loop draws the neighbours of each paper from Python lists, paper by paper. In the fixed variant, the lists
are two tensors on the GPU, from which the neighbours of all papers are drawn at once.
"""

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional

Draw = Callable[[torch.Tensor, int], torch.Tensor]
"""Draws some neighbours of each paper."""


class Citations:
    """The papers that each paper cites, one list after the other."""

    def __init__(self, papers: int, most: int) -> None:
        numbers = np.random.default_rng(5)
        self.counts = numbers.integers(1, most + 1, papers)
        self.begins = np.concatenate([[0], np.cumsum(self.counts)])
        self.cited = numbers.integers(papers, size=self.begins[-1])

    def lists(self) -> list[list[int]]:
        return [each.tolist() for each in np.split(self.cited, self.begins[1:-1])]


def drawn_from_lists(lists: list[list[int]]) -> Draw:
    def draw(papers: torch.Tensor, count: int) -> torch.Tensor:
        drawn = [random.choices(lists[paper], k=count) for paper in papers.tolist()]
        return torch.tensor(drawn)

    return draw


def drawn_from_tensors(citations: Citations, device: str) -> Draw:
    counts, begins, cited = (
        torch.from_numpy(each).to(device) for each in (citations.counts, citations.begins, citations.cited)
    )

    def draw(papers: torch.Tensor, count: int) -> torch.Tensor:
        which = torch.rand(len(papers), count, device=device) * counts[papers][:, None]
        return cited[begins[papers][:, None] + which.long()]

    return draw


class Layer(nn.Module):
    """A paper joined with the largest of what its neighbours say."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.say, self.join = nn.Linear(before, after), nn.Linear(before + after, after)

    def forward(self, papers: torch.Tensor, neighbours: torch.Tensor) -> torch.Tensor:
        said = functional.relu(self.say(neighbours)).amax(1)
        return functional.normalize(functional.relu(self.join(torch.cat([papers, said], -1))), dim=-1)


class Sage(nn.Module):
    def __init__(self, size: int, width: int, fields: int) -> None:
        super().__init__()
        self.near, self.far, self.leave = Layer(width, width), Layer(size, width), nn.Linear(width, fields)

    def forward(self, own: torch.Tensor, near: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
        """Return the logits of papers; features are [paper, size] and two more levels of neighbours."""
        inner = self.far(near.flatten(0, 1), far).unflatten(0, near.shape[:2])
        return self.leave(self.near(self.far(own, near), inner))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    papers, most, size, width, fields = (50, 4, 16, 32, 5) if tiny else (100_000, 40, 512, 1024, 172)
    batch, firsts, seconds = (4, 3, 2) if tiny else (1024, 10, 10)
    citations = Citations(papers, most)
    draw = drawn_from_tensors(citations, device) if fixed else drawn_from_lists(citations.lists())
    features = torch.randn(papers, size, device=device, dtype=torch.bfloat16)
    truth = torch.randint(fields, (papers,), device=device)
    sage = Sage(size, width, fields).to(device)
    optimizer = torch.optim.Adam(sage.parameters(), lr=3e-3, fused=True)
    while True:
        order = torch.randperm(papers, device=device if fixed else "cpu")
        for chosen in order[: papers - papers % batch].split(batch):
            near = draw(chosen, firsts)
            far = draw(near.flatten(), seconds)
            chosen, near, far = chosen.to(device), near.to(device), far.to(device)
            with torch.autocast(device, torch.bfloat16):
                guessed = sage(features[chosen], features[near], features[far])
                loss = functional.cross_entropy(guessed, truth[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield batch
