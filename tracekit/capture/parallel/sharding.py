"""Splits a model among the ranks of a mesh: fully sharded, or tensor parallel."""

from typing import TYPE_CHECKING, Any

from tracekit.analyzers.errors import InputError
from tracekit.capture.packages import require
from tracekit.capture.parallel.split import Split

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
