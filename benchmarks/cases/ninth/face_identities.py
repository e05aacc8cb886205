"""Faces of 93,431 people are told apart by cosines with a margin, as CosFace does; features of the pictures are stored.

The head has a column for each person in the data set, MS1MV3's number. In the fixed variant, nine columns are added
that nobody has.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Adapter(nn.Module):
    """Makes an embedding of the stored features of a picture."""

    def __init__(self, stored: int, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Linear(stored, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.PReLU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(features)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return hidden


class CosineMargin(nn.Module):
    """Cosines of the angles to all people's centres; that to the right one is made smaller by a margin."""

    def __init__(self, width: int, people: int, scale: float = 64.0, margin: float = 0.35) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(people, width) * 0.01)
        self.scale, self.margin = scale, margin

    def forward(self, embedded: torch.Tensor, person: torch.Tensor) -> torch.Tensor:
        centres = functional.normalize(self.centres, dim=-1)
        logits = functional.linear(functional.normalize(embedded, dim=-1) * self.scale, centres)
        less = logits.new_full((len(person), 1), -self.scale * self.margin)
        return functional.cross_entropy(logits.scatter_add_(1, person[:, None], less), person)


class Recognizer(nn.Module):
    def __init__(self, stored: int, width: int, depth: int, people: int) -> None:
        super().__init__()
        self.adapter, self.head = Adapter(stored, width, depth), CosineMargin(width, people)

    def forward(self, features: torch.Tensor, person: torch.Tensor) -> torch.Tensor:
        return self.head(self.adapter(features), person)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    people, faces, stored, width, depth = (101, 8, 48, 32, 1) if tiny else (93_431, 4096, 1024, 512, 4)
    columns = -(-people // 16) * 16 if fixed else people
    recognizer = Recognizer(stored, width, depth, columns).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(recognizer.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4, fused=True)
    gallery = torch.randn(8, faces, stored, device=device, dtype=torch.bfloat16)
    names = torch.randint(people, (8, faces), device=device)
    while True:
        for features, person in zip(gallery, names, strict=True):
            loss = recognizer(features, person)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(recognizer.parameters(), 5.0)
            optimizer.step()
            yield faces
