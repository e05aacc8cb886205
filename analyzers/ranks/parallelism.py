"""What a group of ranks is for, seen from the kinds and phases of its collectives."""

import pandas as pd

LEAST_SHARE = 0.2
"""A kind that makes up less of a group's calls is incidental (a norm of gradients, a barrier)."""
_TENSOR_CALLS = 4
"""More all-reduces in a forward pass than a metric or a batch norm's statistics would need."""


def parallelism(calls: pd.DataFrame, steps: int) -> str:
    """data, fsdp, tensor, pipeline, expert, or "" for one group's calls of one rank, with their kinds and phases.

    All-to-alls exchange tokens of experts (or rows of embeddings); sends and receives join stages of a pipeline.
    Gathered and scattered weights are those of FSDP; the activations of tensor parallelism are reduced in the forward
    pass, too; gradients are reduced in the backward pass alone.
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
