"""Recognizes what runs the model: a serving engine, a training loop, or an inference script."""

from typing import Literal

import pandas as pd

from tracekit.analyzers.attribution.serving import engine_of, engine_of_ops

Runtime = Literal["vllm", "sglang", "training", ""]
"""A serving engine, training, or "" for an inference script."""


def runtime_of(host: pd.DataFrame, *, training: bool) -> Runtime:
    """Return what runs the model: a serving engine if its ranges or ops are recorded, else training or an inference
    script."""
    names = [str(name) for name in host["name"].unique()]
    for name in names:
        if engine := engine_of(name):
            return engine
    return "training" if training else engine_of_ops(names)
