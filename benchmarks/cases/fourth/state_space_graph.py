"""A state-space language model of 700 million parameters writes for one user; each token is one replay of a CUDA graph.

Its layers keep a state instead of keys and values. Each token reads all weights, so that more users cost little.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

STATE, TAPS = 16, 4


class Layer(nn.Module):
    def __init__(self, users: int, width: int, rank: int) -> None:
        super().__init__()
        inner = 2 * width
        self.norm, self.enter = nn.RMSNorm(width), nn.Linear(width, 2 * inner, bias=False)
        self.taps = nn.Parameter(torch.randn(inner, TAPS) * TAPS**-0.5)
        self.select = nn.Linear(inner, rank + 2 * STATE, bias=False)
        self.pace, self.leave = nn.Linear(rank, inner), nn.Linear(inner, width, bias=False)
        self.decay = nn.Parameter(torch.arange(1.0, STATE + 1).log().expand(inner, STATE).clone())
        self.skip = nn.Parameter(torch.ones(inner))
        self.register_buffer("recent", torch.zeros(users, inner, TAPS))
        self.register_buffer("state", torch.zeros(users, inner, STATE))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        new, gate = self.enter(self.norm(hidden)).chunk(2, -1)
        self.recent.copy_(torch.cat([self.recent[..., 1:], new[..., None]], -1))
        new = functional.silu((self.recent * self.taps).sum(-1))
        pace, write, read = self.select(new).split([self.pace.in_features, STATE, STATE], -1)
        pace = functional.softplus(self.pace(pace))[..., None]
        kept = torch.exp(-pace * self.decay.exp()) * self.state
        self.state.copy_(kept + pace * write[:, None] * new[..., None])
        said = (self.state * read[:, None]).sum(-1) + self.skip * new
        return hidden + self.leave(said * functional.silu(gate))


class Writer(nn.Module):
    def __init__(self, users: int, words: int, width: int, depth: int, rank: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.layers = nn.Sequential(*(Layer(users, width, rank) for _ in range(depth)))
        self.norm = nn.RMSNorm(width)

    def forward(self, token: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.embed(token))))


def recorded(step: Callable[[], None], device: str) -> Callable[[], None]:
    if device == "cpu":
        return step
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        step()
        step()
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    users = 8 if fixed else 1
    words, width, depth, rank = (512, 32, 2, 4) if tiny else (32_000, 2048, 24, 128)
    with torch.device(device):
        writer = Writer(users, words, width, depth, rank).to(torch.bfloat16).eval()
        token = torch.randint(words, (users,))
        text = torch.zeros(4096, users, dtype=torch.long)
    step = recorded(lambda: token.copy_(writer(token).argmax(-1)), device)
    while True:
        for place in range(len(text)):
            step()
            text[place].copy_(token)
            yield users
