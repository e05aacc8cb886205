"""What runs the model: a serving engine, a training loop, or a script of inference."""

from typing import Literal

import pandas as pd

from tracekit.analyzers.attribution.serving import engine_of

Runtime = Literal["vllm", "sglang", "training", ""]
"""Serving engine, training, or inference by a script ("")."""


def runtime_of(host: pd.DataFrame, *, training: bool) -> Runtime:
    """What runs the model: a serving engine by the ranges that it records, else training or a script of inference."""
    for name in host["name"].unique():
        if engine := engine_of(str(name)):
            return engine
    return "training" if training else ""
