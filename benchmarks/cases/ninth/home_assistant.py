"""A language model answers one household; sixteen tokens, sampling included, are one replay of a CUDA graph.

The model keeps a small latent vector of each token in place of keys and values, as DeepSeek's do. Its 1.6 billion
parameters are read once for each token. In the fixed variant, eight households are answered at once.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class LatentAttention(nn.Module):
    """Attention of one new token to the latent vectors of all tokens before."""

    def __init__(self, users: int, longest: int, width: int, heads: int, size: int, rank: int) -> None:
        super().__init__()
        self.heads = heads
        self.ask, self.squeeze = nn.Linear(width, heads * size, bias=False), nn.Linear(width, rank, bias=False)
        self.key_of = nn.Parameter(torch.randn(heads, size, rank) * rank**-0.5)
        self.value_of = nn.Parameter(torch.randn(heads, rank, size) * rank**-0.5)
        self.out = nn.Linear(heads * size, width, bias=False)
        self.scale = size**-0.5
        self.register_buffer("latents", torch.zeros(users, longest, rank))

    def forward(self, hidden: torch.Tensor, place: torch.Tensor, unseen: torch.Tensor) -> torch.Tensor:
        self.latents.index_copy_(1, place, self.squeeze(hidden)[:, None])
        asked = self.ask(hidden).unflatten(-1, (self.heads, -1)).transpose(0, 1) @ self.key_of
        scores = asked.transpose(0, 1) @ self.latents.transpose(1, 2) * self.scale
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        heard = (weights @ self.latents).transpose(0, 1) @ self.value_of
        return self.out(heard.transpose(0, 1).flatten(1))


class Gated(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        gate, up = self.enter(hidden).chunk(2, -1)
        return self.leave(functional.silu(gate) * up)


class Assistant(nn.Module):
    def __init__(self, users: int, longest: int, words: int, width: int, depth: int, inner: int, **attention) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.attention = nn.ModuleList(LatentAttention(users, longest, width, **attention) for _ in range(depth))
        self.gated = nn.ModuleList(Gated(width, inner) for _ in range(depth))
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2 * depth + 1))
        self.register_buffer("token", torch.zeros(users, dtype=torch.long))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))
        self.register_buffer("all_places", torch.arange(longest))

    def forward(self) -> None:
        """Write the next token of each user into `token`."""
        hidden = self.embed(self.token) + self.places(self.place)
        unseen = self.all_places > self.place
        for number, (attention, gated) in enumerate(zip(self.attention, self.gated, strict=True)):
            hidden = hidden + attention(self.norms[2 * number](hidden), self.place, unseen)
            hidden = hidden + gated(self.norms[2 * number + 1](hidden))
        odds = functional.linear(self.norms[-1](hidden), self.embed.weight).float().softmax(-1)
        self.token.copy_((odds / torch.empty_like(odds).exponential_()).argmax(-1))
        self.place.add_(1).remainder_(len(self.all_places))


class Burst:
    """Writes some tokens for each user; on a GPU by one CUDA graph."""

    def __init__(self, assistant: Assistant, tokens: int, device: str) -> None:
        self.assistant, self.graph = assistant, None
        self.written = torch.zeros(tokens, len(assistant.token), dtype=torch.long, device=device)
        if device != "cpu":
            self.record()

    def write(self) -> None:
        for row in self.written:
            self.assistant()
            row.copy_(self.assistant.token)

    def record(self) -> None:
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            self.write()
            self.write()
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.write()

    def __call__(self) -> torch.Tensor:
        if self.graph:
            self.graph.replay()
        else:
            self.write()
        return self.written.cpu()


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    users, tokens = 8 if fixed else 1, 4 if tiny else 16
    size = (32, 100, 64, 2, 96) if tiny else (512, 32_000, 3072, 16, 8192)
    attention = {"heads": 2, "size": 16, "rank": 32} if tiny else {"heads": 16, "size": 128, "rank": 512}
    with torch.device(device):
        assistant = Assistant(users, *size, **attention).to(torch.bfloat16).eval()
    burst = Burst(assistant, tokens, device)
    while True:
        yield burst().numel()
