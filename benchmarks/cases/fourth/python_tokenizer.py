"""Documents are sorted by topic; their words are cut into pieces by a byte-pair tokenizer in Python, anew each time.

In the fixed variant, the pieces of a word are remembered, as in GPT-2's tokenizer.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import nn

LETTERS = "etaoinshrdlucmfwypvbgkqjxz"


class BytePairs:
    def __init__(self, merges: list[tuple[str, str]], remembers: bool) -> None:
        self.rank = {pair: place for place, pair in enumerate(merges)}
        pieces = [*LETTERS, *("".join(pair) for pair in merges)]
        self.number = {piece: place + 1 for place, piece in enumerate(pieces)}
        self.known: dict[str, list[int]] = {}
        self.remembers = remembers

    def __call__(self, documents: list[str], length: int) -> torch.Tensor:
        rows = []
        for document in documents:
            ids = [number for word in document.split() for number in self.pieces(word)][:length]
            rows.append(ids + [0] * (length - len(ids)))
        return torch.tensor(rows)

    def pieces(self, word: str) -> list[int]:
        if not self.remembers:
            return self.merged(word)
        if word not in self.known:
            self.known[word] = self.merged(word)
        return self.known[word]

    def merged(self, word: str) -> list[int]:
        parts = list(word)
        while known := [pair for pair in pairwise(parts) if pair in self.rank]:
            best = min(known, key=self.rank.__getitem__)
            place = list(pairwise(parts)).index(best)
            parts[place : place + 2] = ["".join(best)]
        return [self.number[part] for part in parts]


def learned_merges(random: np.random.Generator, count: int) -> list[tuple[str, str]]:
    pieces, merges = list(LETTERS), set()
    while len(merges) < count:
        left, right = (pieces[int(random.pareto(1.0) * 3) % len(pieces)] for _ in range(2))
        if len(left + right) <= 6 and (left, right) not in merges and left + right not in pieces:
            merges.add((left, right))
            pieces.append(left + right)
    return sorted(merges)


class Sorter(nn.Module):
    def __init__(self, pieces: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.embed, self.topic = nn.Embedding(pieces, width, padding_idx=0), nn.Linear(width, 20)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "relu", batch_first=True)
        self.read = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.topic(self.read(self.embed(ids)).mean(1))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    count, words, length = (2, 10, 32) if tiny else (16, 128, 256)
    random = np.random.default_rng(8)
    tokenizer = BytePairs(learned_merges(random, 30 if tiny else 800), fixed)
    lexicon = np.array(["".join(random.choice(list(LETTERS), random.integers(3, 12))) for _ in range(3000)])
    sorter = Sorter(1000, *((16, 2, 2) if tiny else (768, 12, 12))).to(device, torch.bfloat16).eval()
    topics = []
    while True:
        documents = [" ".join(random.choice(lexicon, words)) for _ in range(count)]
        topics.append(sorter(tokenizer(documents, length).to(device)).argmax(-1))
        yield count
