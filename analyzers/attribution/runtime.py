"""Recognizes what runs the model: a serving engine, a training loop, or an inference script."""

from typing import Literal

import pandas as pd

from tracekit.analyzers.attribution.serving import engine_of

Runtime = Literal["vllm", "sglang", "training", ""]
"""A serving engine, training, or "" for an inference script."""


def runtime_of(host: pd.DataFrame, *, training: bool) -> Runtime:
    """Return what runs the model: a serving engine if its ranges are recorded, else training or an inference script."""
    for name in host["name"].unique():
        if engine := engine_of(str(name)):
            return engine
    return "training" if training else ""
