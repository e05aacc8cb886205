"""Infers the parallelism of a group of ranks from the kinds and phases of its collectives."""

import pandas as pd

LEAST_SHARE = 0.2
"""A kind with a smaller fraction of a group's calls is incidental, such as a gradient norm or a barrier."""
_TENSOR_CALLS = 4
"""More all-reduces per forward pass than metrics and the statistics of batch norms need."""


def parallelism(calls: pd.DataFrame, steps: int) -> str:
    """Return data, fsdp, tensor, pipeline, expert or "", from one rank's calls of a group.

    All-to-alls exchange tokens of experts (or rows of embeddings). Sends and receives connect the stages of a pipeline.
    FSDP gathers and scatters weights. Tensor parallelism reduces activations in the forward pass too; data parallelism
    reduces gradients in the backward pass only.
    """
    kinds = calls["kind"].value_counts(normalize=True)
    common = set(kinds[kinds >= LEAST_SHARE].index)
    if "send-receive" in common:
        return "pipeline"
    if "all-to-all" in common:
        return "expert"
    if {"all-gather", "reduce-scatter"} <= common:
        return "fsdp"
    reduces = calls[calls["kind"].isin(["all-reduce", "reduce-scatter"])]
    if reduces.empty:
        return ""
    forward = (reduces["phase"] == "forward").sum() / max(1, steps)
    return "tensor" if forward >= _TENSOR_CALLS else "data"
