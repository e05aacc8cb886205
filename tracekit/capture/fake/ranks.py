"""Splits a model among the ranks of a mesh: fully sharded, or tensor parallel."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError
from tracekit.analyzers.predict import CAP_BYTES, FIRST_BYTES
from tracekit.run import Split, require

if TYPE_CHECKING:
    from torch import nn


_COLUMNS, _ROWS = "colwise", "rowwise"
_GATHERED = ("colwise_rep", "colwise_gather_output")
"""Names in transformers' plans for column-wise layers whose results every rank needs."""


def shard(model: "nn.Module", split: Split, mesh: Any) -> None:
    """Split the model in place. A data-parallel model stays whole."""
    if split.kind == "fsdp":
        fully_sharded = require("torch.distributed.fsdp").fully_shard
        for block in blocks(model):
            fully_sharded(block, mesh=mesh)
        fully_sharded(model, mesh=mesh)
    elif split.kind == "tensor-parallel":
        styles = require("torch.distributed.tensor.parallel")
        styles.parallelize_module(model, mesh, tensor_plan(model, split.ranks))


def blocks(model: "nn.Module") -> list["nn.Module"]:
    """Return the elements of the model's outermost lists of modules, which are its layers."""
    lists = [(name, each) for name, each in model.named_modules() if isinstance(each, require("torch").nn.ModuleList)]
    outer = [each for name, each in lists if not any(name.startswith(f"{other}.") for other, _ in lists)]
    return [block for each in outer for block in each]


def tensor_plan(model: Any, ranks: int) -> dict[str, Any]:
    """Return the style of each layer that is split, from transformers' plan for the model.

    Raises InputError if there is no plan, or the heads cannot be divided among the ranks.
    """
    named = {f"{model.base_model_prefix}.{name}": style for name, style in (_base_plan(model) or {}).items()}
    if not named or not all(style in (_COLUMNS, _ROWS, *_GATHERED) for style in named.values()):
        raise InputError(
            f"{type(model).__name__} has no known tensor-parallel plan.",
            "transformers says for each model which layers are split by columns and which by rows.",
            "Try --fsdp or --data-parallel, or a Llama, Mistral or Qwen model.",
        )
    heads = getattr(model.config, "num_key_value_heads", 0) or model.config.num_attention_heads
    if heads % ranks:
        raise InputError(
            f"{heads} heads of keys and values cannot be divided among {ranks} ranks.",
            "Each rank takes whole heads.",
            "Name a divisor of them.",
        )
    head = {name: style for name, style in (model._tp_plan or {}).items() if style in _GATHERED and "." not in name}
    return {name: _style(style) for name, style in (named | head).items()}


def _base_plan(model: Any) -> Any:
    return getattr(model.config, "base_model_tp_plan", None)


def _style(name: str) -> Any:
    styles, replicated = require("torch.distributed.tensor.parallel"), require("torch.distributed.tensor").Replicate()
    if name == _ROWS:
        return styles.RowwiseParallel()
    return styles.ColwiseParallel(output_layouts=replicated) if name in _GATHERED else styles.ColwiseParallel()


def local(tensor: Any) -> Any:
    """Return the part of a tensor that this rank holds."""
    sharded = require("torch.distributed.tensor").DTensor
    return tensor.to_local() if isinstance(tensor, sharded) else tensor


@contextmanager
def fake_world(split: Split | None) -> Iterator[Any]:
    """Yield the mesh of the ranks, of which this process is rank 0; None for one GPU.

    Must be entered before FakeTensorMode, in which a mesh would contain no numbers.
    """
    if split is None:
        yield None
        return
    distributed = require("torch.distributed")
    store = require("torch.testing._internal.distributed.fake_pg").FakeStore()
    distributed.init_process_group("fake", store=store, rank=0, world_size=split.ranks)
    try:
        yield require("torch.distributed.device_mesh").init_device_mesh("cpu", (split.ranks,))
    finally:
        distributed.destroy_process_group()


class Reducer:
    """Reduces the gradients of a model among the ranks of the default group."""

    def __init__(self, parameters: list[Any], ranks: int) -> None:
        self._torch, self._ranks = require("torch"), ranks
        self._filling: list[Any] = []
        self._buckets: list[tuple[Any, list[Any]]] = []
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def _ready(self, parameter: Any) -> None:
        if not self._filling and not self._buckets:
            self._torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._filling.append(parameter)
        cap = CAP_BYTES if self._buckets else FIRST_BYTES
        if sum(each.grad.nbytes for each in self._filling) >= cap:
            self._reduce()

    def _reduce(self) -> None:
        members, self._filling = self._filling, []
        grads = [each.grad for each in members]
        flat = self._torch.empty(sum(each.numel() for each in grads), dtype=grads[0].dtype, device=grads[0].device)
        for part, grad in zip(flat.split([each.numel() for each in grads]), grads, strict=True):
            self._torch.mul(grad.view(-1), 1 / self._ranks, out=part)
        self._torch.distributed.all_reduce(flat, async_op=True)
        self._buckets.append((flat, members))

    def _finish(self) -> None:
        """Reduce the remaining gradients, and copy all gradients back."""
        if self._filling:
            self._reduce()
        for flat, members in self._buckets:
            for part, each in zip(flat.split([each.numel() for each in members]), members, strict=True):
                each.grad.view(-1).copy_(part)
        self._buckets = []
