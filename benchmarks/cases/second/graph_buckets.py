"""A chat server decodes for one user with a Llama-like model of 1.1 billion parameters.

Its steps are CUDA graphs, one for each bucket of context lengths; only the sampling is launched by Python. Each token
reads all weights, so that more users at once cost little.
"""

from collections.abc import Callable, Iterator

import torch
from torch import nn

HEAD = 64


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, inner: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, (heads + 2 * groups) * HEAD, bias=False)
        self.out = nn.Linear(heads * HEAD, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

    def forward(self, hidden, at, turn, cache, reach):
        hidden = hidden + self.attend(self.before(hidden), at, turn, cache, reach)
        gate, up = self.gate_up(self.between(hidden)).chunk(2, -1)
        return hidden + self.down(nn.functional.silu(gate) * up)

    def attend(self, hidden, at, turn, cache, reach):
        users = len(hidden)
        q, k, v = self.qkv(hidden).view(users, -1, HEAD).split([self.heads, self.groups, self.groups], 1)
        cache[0].index_copy_(2, at, rotate(k, turn)[:, :, None])
        cache[1].index_copy_(2, at, v[:, :, None])
        keys, values = cache[:, :, :, :reach]
        q = rotate(q, turn).view(users, self.groups, -1, HEAD)
        scores = (q @ keys.transpose(-1, -2)) * HEAD**-0.5
        later = torch.arange(reach, device=hidden.device) > at
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.out((weights @ values).reshape(users, -1))


def rotate(heads: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    left, right = heads.chunk(2, -1)
    return torch.cat([left * turn[0] - right * turn[1], right * turn[0] + left * turn[1]], -1)


class Decoder(nn.Module):
    def __init__(self, users: int, longest: int, vocabulary: int, width: int, depth: int, inner: int) -> None:
        super().__init__()
        heads, groups = width // HEAD, max(width // HEAD // 8, 1)
        self.embed, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary, bias=False)
        self.layers = nn.ModuleList(Layer(width, heads, groups, inner) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        rates = 10_000 ** (-torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.arange(longest)[:, None] * rates
        self.register_buffer("turns", torch.stack([angles.cos(), angles.sin()], 1))
        self.register_buffer("caches", torch.zeros(depth, 2, users, groups, longest, HEAD))

    def forward(self, token: torch.Tensor, at: torch.Tensor, reach: int) -> torch.Tensor:
        hidden, turn = self.embed(token), self.turns.index_select(0, at)[0]
        for layer, cache in zip(self.layers, self.caches, strict=True):
            hidden = layer(hidden, at, turn, cache, reach)
        return self.head(self.norm(hidden))


class Server:
    def __init__(self, model: Decoder, users: int, buckets: list[int], device: str) -> None:
        self.model, self.buckets = model, buckets
        self.token = torch.zeros(users, dtype=torch.long, device=device)
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.logits = model(self.token, self.at, buckets[0])
        self.replay = {reach: self.recorded(reach, device) for reach in buckets}

    def recorded(self, reach: int, device: str) -> Callable[[], None]:
        def forward() -> None:
            self.logits.copy_(self.model(self.token, self.at, reach))

        if device == "cpu":
            return forward
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            forward()
            forward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            forward()
        return graph.replay

    def next_token(self, position: int) -> torch.Tensor:
        self.at.fill_(position)
        self.replay[next(reach for reach in self.buckets if reach > position)]()
        best, ids = self.logits.float().topk(40)
        odds = (best / 0.8).softmax(-1)
        picked = (odds / torch.empty_like(odds).exponential_()).argmax(-1, keepdim=True)
        self.token.copy_(ids.gather(-1, picked)[:, 0])
        return self.token


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    users = 8 if fixed else 1
    size = (512, 64, 2, 96) if tiny else (32_000, 2048, 22, 5632)
    buckets = [32, 64] if tiny else [256, 512, 1024]
    with torch.device(device):
        model = Decoder(users, buckets[-1], *size).to(torch.bfloat16).eval()
    server = Server(model, users, buckets, device)
    while True:
        for position in range(buckets[0] // 2, buckets[-1]):
            server.next_token(position)
            yield users
