"""One rank of a training job on CPUs or GPUs, with or without a fault: five ways in which ranks share a model."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, IterableDataset

HEALTHY, MORE_CALLS = "healthy", "one more collective"
FAULTS = ("slower device", "host", "more work", "data loading", MORE_CALLS)
"""As tracekit names the causes; for `MORE_CALLS`, it lists a problem."""
STEPS, WARM_UP, MICRO_BATCHES, LONGER = 8, 2, 4, 8
_CONTENDER = "import torch as t; a = t.randn(2048, 2048, device='{}')\nwhile True: a = (a @ a).clamp(-1, 1)"


@dataclass(frozen=True)
class Size:
    """A model, the rows of a rank's batch, and the seconds that a pause of a fault takes."""

    width: int
    layers: int
    rows: int
    pause_s: float


SIZES = {"cpu": Size(128, 4, 64, 0.4), "cuda": Size(4096, 15, 4096, 0.1)}
"""On GPUs, a model has about a billion weights (with experts: over all ranks)."""


@dataclass(frozen=True)
class Rank:
    """One rank of a job, with the fault that it has."""

    number: int
    world: int
    size: Size
    fault: str
    catches_up: bool
    """Whether a peer makes one call more, which this rank makes up after the recording."""
    device: torch.device


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Experts(nn.Module):
    """A rank's expert, which gets an equal part of the rows of each rank."""

    def __init__(self, width: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.expert, self.group = Block(width), group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        there = all_to_all_single_autograd(x.contiguous(), None, None, self.group)
        return x + all_to_all_single_autograd(self.expert(there), None, None, self.group)


class Batches(IterableDataset):
    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    def __iter__(self) -> Iterator[torch.Tensor]:
        size, fault = self.rank.size, self.rank.fault
        while True:
            if fault == "data loading":
                time.sleep(size.pause_s)
            yield torch.randn(size.rows * (LONGER if fault == "more work" else 1), size.width)


Model = Callable[[torch.Tensor], torch.Tensor]
"""From a batch to the loss; a pipeline computes its gradients on the way."""


def data_parallel(rank: Rank) -> tuple[nn.Module, Model]:
    init_device_mesh(rank.device.type, (rank.world,), mesh_dim_names=("data",))
    inner = _tower(rank)
    return inner, _loss(DistributedDataParallel(inner))


def sharded(rank: Rank) -> tuple[nn.Module, Model]:
    mesh, model = init_device_mesh(rank.device.type, (rank.world,), mesh_dim_names=("fsdp",)), _tower(rank)
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh), _loss(model)


def tensor_parallel(rank: Rank) -> tuple[nn.Module, Model]:
    """All but the first block, so that a rank's longer batch leaves the sizes of the collectives as they are."""
    mesh, model = init_device_mesh(rank.device.type, (rank.world,), mesh_dim_names=("tensor",)), _tower(rank)
    for block in list(model)[1:]:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model, _loss(model, rank.size.rows)


def expert_parallel(rank: Rank) -> tuple[nn.Module, Model]:
    mesh = init_device_mesh(rank.device.type, (rank.world,), mesh_dim_names=("expert",))
    layers = [Experts(rank.size.width, mesh.get_group()) for _ in range(max(2, rank.size.layers // rank.world))]
    model = nn.Sequential(Block(rank.size.width), *layers).to(rank.device)
    return model, _loss(model, rank.size.rows)


def pipeline(rank: Rank) -> tuple[nn.Module, Model]:
    """Pairs of ranks are the two stages; the ranks of a stage reduce their gradients."""
    names = ("data", "stage")
    mesh = init_device_mesh(rank.device.type, (rank.world // 2, 2), mesh_dim_names=names)
    model = _tower(rank, rank.size.layers // 2)
    return model, lambda batch: _pipelined(model, mesh, batch, rank.size.rows)


def _pipelined(model: nn.Module, mesh: DeviceMesh, batch: torch.Tensor, rows: int) -> torch.Tensor:
    stage, group = mesh.get_local_rank("stage"), mesh.get_group("stage")
    first, rest = model[0], model[1:]
    parts, ends = first(batch)[:rows].chunk(MICRO_BATCHES), []
    for part in parts:
        given = part if stage == 0 else _received(part, group).requires_grad_()
        out = rest(given)
        ends.append((given, out))
        if stage == 0:
            dist.send(out.detach(), group=group, group_dst=1)
    for number, (given, out) in enumerate(ends):
        last = number == len(ends) - 1
        if stage == 0:
            out.backward(_received(out, group), retain_graph=not last)
        else:
            (out - parts[number]).square().mean().backward(retain_graph=not last)
            dist.send(given.grad, group=group, group_dst=0)
    for weights in model.parameters():
        dist.all_reduce(weights.grad, group=mesh.get_group("data"))
    return ends[-1][1].detach().mean()


def _received(like: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    place = torch.empty_like(like)
    dist.recv(place, group=group, group_src=1 - dist.get_rank(group))
    return place


def _tower(rank: Rank, layers: int = 0) -> nn.Sequential:
    return nn.Sequential(*(Block(rank.size.width) for _ in range(layers or rank.size.layers))).to(rank.device)


def _loss(model: nn.Module, rows: int | None = None) -> Model:
    """With `rows`, what follows the first block gets only as many rows."""

    def loss(batch: torch.Tensor) -> torch.Tensor:
        out = model(batch) if rows is None else model[1:](model[0](batch)[:rows])
        return out.square().mean()

    return loss


KINDS = {
    "ddp": data_parallel,
    "fsdp": sharded,
    "tensor": tensor_parallel,
    "expert": expert_parallel,
    "pipeline": pipeline,
}


def run(rank: Rank, kind: str, target: Path) -> None:
    """Record a rank of a job, and end its process: the group with the additional call is never at rest."""
    if rank.device.type == "cuda":
        torch.cuda.set_device(rank.device)
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if rank.device.type == "cuda" else "gloo", rank=rank.number, world_size=rank.world)
    with ExitStack() as ends:
        if rank.fault == "slower device":
            ends.callback(subprocess.Popen([sys.executable, "-c", _CONTENDER.format(rank.device)]).kill)
        _record(rank, kind, target)
    dist.barrier()
    os._exit(0)


def _record(rank: Rank, kind: str, target: Path) -> None:
    torch.manual_seed(0)
    metrics = dist.new_group(group_desc="metrics")
    weights, model = KINDS[kind](rank)
    optimizer = torch.optim.SGD(weights.parameters(), lr=1e-4)
    batches = iter(DataLoader(Batches(rank), batch_size=None))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if rank.device.type == "cuda" else [])]
    plan = schedule(wait=0, warmup=WARM_UP, active=STEPS, repeat=1)
    with profile(activities=activities, schedule=plan, record_shapes=True) as profiler:
        for number in range(WARM_UP + STEPS):
            _step(rank, next(batches), model, optimizer)
            for _ in range(2 if rank.fault == MORE_CALLS and number == WARM_UP + STEPS // 2 else 1):
                _report(rank, metrics)
            profiler.step()
    if rank.catches_up and rank.fault != MORE_CALLS:
        _report(rank, metrics)
    profiler.export_chrome_trace(str(target))


def _report(rank: Rank, group: dist.ProcessGroup) -> None:
    """Nobody waits for this call, so that a rank that makes it once more stops no other. The others make theirs up
    after the recording; a GPU whose call still waited would never end it."""
    dist.all_reduce(torch.zeros(1000, device=rank.device), group=group, async_op=True)


def _step(rank: Rank, batch: torch.Tensor, model: Model, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss = model(batch.to(rank.device))
    if rank.fault == "host":
        _keep_busy(rank.size.pause_s)
    if loss.requires_grad:
        loss.backward()
    optimizer.step()


def _keep_busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
