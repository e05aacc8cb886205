"""Infers the parallelism of a group of ranks from the kinds and phases of its collectives."""

import pandas as pd

LEAST_SHARE = 0.2
"""A kind with a smaller fraction of a group's calls is incidental, such as a gradient norm or a barrier."""
_GATHERED = 0.5
"""Smallest ratio of gathered to reduced bytes at which the gathered tensors are weights."""
_TENSOR_CALLS = 4
"""More all-reduces per forward pass than metrics and the statistics of batch norms need."""


def parallelism(calls: pd.DataFrame, steps: int, *, trains: bool) -> str:
    """Return data, fsdp, tensor, pipeline, expert, or "" for one group's calls of one rank, by their kinds and phases.

    All-to-alls exchange tokens of experts (or rows of embeddings); sends and receives join stages of a pipeline. FSDP
    gathers weights and scatters gradients; gloo reduces them to all instead. Tensor parallelism reduces activations in
    the forward pass, too (sequence parallelism scatters them); data parallelism reduces gradients in the backward pass.
    A job that `trains` nothing has a forward pass only.
    """
    kinds = calls["kind"].value_counts(normalize=True)
    common = set(kinds[kinds >= LEAST_SHARE].index)
    if "send-receive" in common:
        return "pipeline"
    if "all-to-all" in common:
        return "expert"
    reduces = calls[calls["kind"].isin(["all-reduce", "reduce-scatter"])]
    forward = (reduces["phase"] == "forward").sum() if trains else len(reduces)
    if forward / max(1, steps) >= _TENSOR_CALLS:
        return "tensor"
    if "all-gather" in common and ("reduce-scatter" in common or _gathers_what_it_reduces(calls)):
        return "fsdp"
    return "data" if len(reduces) else ""


def _gathers_what_it_reduces(calls: pd.DataFrame) -> bool:
    """Return whether about as many bytes are gathered as reduced."""
    sums = calls.groupby(calls["kind"].astype(str))["bytes"].sum()
    return bool(sums.get("all-gather", 0) >= _GATHERED * sums.get("all-reduce", 0) > 0)
