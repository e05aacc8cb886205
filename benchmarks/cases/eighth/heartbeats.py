"""Electrocardiograms are sorted into diagnoses by a gated MLP that mixes along time, trained in bfloat16.

A thousand pieces of a recording and a class token are 1,001 tokens, which is the width of the product along time in
each layer. In the fixed variant, 23 empty tokens follow: 1,024.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

LEADS, PIECE = 12, 5


class TimeGate(nn.Module):
    """Half of the channels are multiplied by the other half, mixed along time."""

    def __init__(self, inner: int, tokens: int) -> None:
        super().__init__()
        self.norm, self.along = nn.LayerNorm(inner // 2), nn.Linear(tokens, tokens)
        nn.init.zeros_(self.along.weight)
        nn.init.ones_(self.along.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        signal, gate = hidden.chunk(2, -1)
        gate = self.along(self.norm(gate).transpose(1, 2).contiguous())
        return signal * gate.transpose(1, 2)


class Block(nn.Module):
    def __init__(self, tokens: int, width: int, inner: int) -> None:
        super().__init__()
        self.norm, self.wide = nn.LayerNorm(width), nn.Linear(width, inner)
        self.gate, self.narrow = TimeGate(inner, tokens), nn.Linear(inner // 2, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.narrow(self.gate(functional.gelu(self.wide(self.norm(hidden)))))


class Cardiologist(nn.Module):
    def __init__(self, pieces: int, spare: int, width: int, inner: int, depth: int, diagnoses: int) -> None:
        super().__init__()
        self.spare, self.enter = spare, nn.Conv1d(LEADS, width, PIECE, PIECE)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(pieces + 1 + spare, width, inner) for _ in range(depth)))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, diagnoses)

    def forward(self, recordings: torch.Tensor) -> torch.Tensor:
        pieces = self.enter(recordings).transpose(1, 2)
        tokens = torch.cat([self.first.expand(len(pieces), -1, -1), pieces], 1)
        tokens = functional.pad(tokens, (0, 0, 0, self.spare)) if self.spare else tokens
        return self.leave(self.norm(self.blocks(tokens)[:, 0]))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, pieces, diagnoses, size = (2, 10, 8, (16, 32, 2)) if tiny else (64, 1000, 71, (256, 1536, 8))
    spare = -(pieces + 1) % 64 if fixed else 0
    model = Cardiologist(pieces, spare, *size, diagnoses).to(device, torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    recordings = torch.randn(batch, LEADS, pieces * PIECE, device=device, dtype=torch.bfloat16)
    truth = (torch.rand(batch, diagnoses, device=device) < 0.05).to(torch.bfloat16)
    while True:
        loss = functional.binary_cross_entropy_with_logits(model(recordings), truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield batch
