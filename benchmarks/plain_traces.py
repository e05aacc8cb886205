"""Records four trainings as people write them, without tracekit: DLRM with dense and sparse gradients, a graph
network, and torch's transformer encoder. Their traces are in examples/traces/plain.

    python benchmarks/plain_traces.py OUT

The printed times are milliseconds per step without the profiler, the mean of 20 steps.
"""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule

DEVICE = "cuda"
ROWS, WIDTH, TABLES, PER_BAG, BATCH = 500_000, 64, 8, 10, 8192
NODES, EDGES, CLASSES = 20_000, 200_000, 40
RECORDED = 3


class Ranker(nn.Module):
    """DLRM: lookups and a bottom MLP, dot products of each pair, a top MLP."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse) for _ in range(TABLES))
        pairs = TABLES * (TABLES + 1) // 2
        self.bottom, self.top = mlp(13, 512, 256, WIDTH), mlp(WIDTH + pairs, 1024, 1024, 512)
        self.score = nn.Linear(512, 1)

    def forward(self, dense: Tensor, chosen: list[Tensor], begins: Tensor) -> Tensor:
        x = self.bottom(dense)
        vectors = torch.stack([x, *(table(rows, begins) for table, rows in zip(self.tables, chosen, strict=True))], 1)
        first, second = torch.tril_indices(TABLES + 1, TABLES + 1, -1, device=dense.device)
        products = (vectors @ vectors.transpose(1, 2))[:, first, second]
        return self.score(self.top(torch.cat([x, products], 1))).squeeze(1)


class GraphNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(128, 256), nn.Linear(256, CLASSES)])

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(torch.zeros_like(x).index_add_(0, target, x[source])).relu()
        return x


def mlp(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*(part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())))


def ranking(sparse: bool) -> Callable[[], None]:
    model = Ranker(sparse).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    dense, clicked = torch.randn(BATCH, 13, device=DEVICE), torch.rand(BATCH, device=DEVICE).round()
    begins = torch.arange(0, BATCH * PER_BAG, PER_BAG, device=DEVICE)
    chosen = [torch.randint(0, ROWS, (BATCH * PER_BAG,), device=DEVICE) for _ in range(TABLES)]

    def step() -> None:
        optimizer.zero_grad()
        functional.binary_cross_entropy_with_logits(model(dense, chosen, begins), clicked).backward()
        optimizer.step()

    return step


def graph_network() -> Callable[[], None]:
    model = GraphNetwork().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    x, labels = torch.randn(NODES, 128, device=DEVICE), torch.randint(0, CLASSES, (NODES,), device=DEVICE)
    source, target = torch.randint(0, NODES, (2, EDGES), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x, source, target), labels).backward()
        optimizer.step()

    return step


def encoder() -> Callable[[], None]:
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).to(DEVICE)
    optimizer, x = torch.optim.AdamW(model.parameters()), torch.randn(4, 256, 512, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    record("dlrm-dense", ranking(sparse=False), out)
    record("dlrm-sparse", ranking(sparse=True), out)
    record("gnn", graph_network(), out)
    record("encoder", encoder(), out)


def record(name: str, step: Callable[[], None], out: Path) -> None:
    print(f"{name}: {timed_ms(step):.3f} ms", flush=True)
    path = str(out / f"h100_{name}.json.gz")
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=2, active=RECORDED, repeat=1),
        record_shapes=True,
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(path),
    ) as profiler:
        for _ in range(2 + RECORDED):
            step()
            profiler.step()


def timed_ms(step: Callable[[], None], warm_up: int = 5, count: int = 20) -> float:
    for _ in range(warm_up):
        step()
    torch.cuda.synchronize()
    begin = perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (perf_counter() - begin) / count * 1e3


if __name__ == "__main__":
    main()
