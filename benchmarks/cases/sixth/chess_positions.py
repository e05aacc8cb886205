"""A search asks a transformer to rate 256 chess positions at once; a batch is one replay of a CUDA graph.

The graph is not the cause: the network is in float32 and keeps the GPU busy. In the fixed variant, it is in bfloat16.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional

SQUARES, PLANES, MOVES = 64, 112, 1858


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.near = heads, nn.Parameter(torch.randn(heads, SQUARES, SQUARES))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, board: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](board)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=self.near.expand(len(board), -1, -1, -1))
        board = board + self.out(seen.transpose(1, 2).flatten(2))
        return board + self.narrow(functional.mish(self.wide(self.norms[1](board))))


class Player(nn.Module):
    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.enter = nn.Linear(PLANES, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)), nn.LayerNorm(width))
        self.squeeze = nn.Linear(width, 32)
        self.policy, self.value = nn.Linear(32 * SQUARES, MOVES), nn.Linear(32 * SQUARES, 3)

    def forward(self, planes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        board = self.squeeze(self.blocks(self.enter(planes))).flatten(1)
        return self.policy(board), self.value(board).softmax(-1)


class Server:
    """Answers from fixed tensors, which a CUDA graph reads and writes."""

    def __init__(self, player: Player, batch: int, kind: torch.dtype, device: str) -> None:
        self.player, self.kind = player, kind
        self.planes = torch.zeros(batch, SQUARES, PLANES, dtype=torch.uint8, device=device)
        self.graph = None if device == "cpu" else self.recorded()

    def compute(self) -> None:
        policy, self.values = self.player(self.planes.to(self.kind))
        self.moves = policy.topk(8).indices

    def recorded(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.compute()
        return graph

    def __call__(self, planes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.planes.copy_(planes, non_blocking=True)
        if self.graph:
            self.graph.replay()
        else:
            self.compute()
        return self.moves.cpu(), self.values.float().cpu()


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, width, depth, heads = (4, 32, 2, 2) if tiny else (256, 512, 10, 16)
    kind = torch.bfloat16 if fixed else torch.float32
    server = Server(Player(width, depth, heads).to(device, kind).eval(), batch, kind, device)
    games = torch.randint(2, (10, batch, SQUARES, PLANES), dtype=torch.uint8)
    games = games if device == "cpu" else games.pin_memory()
    while True:
        for planes in games:
            server(planes)
            yield batch
