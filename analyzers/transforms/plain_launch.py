"""The host time of a plain launch, one without a module call or Python code before it: the unit of added host time."""

from dataclasses import replace

import numpy as np

from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.transforms.outcome import remembered

_PLAIN = 0.25
"""The fraction of a run's launches that take no longer than a plain one."""

_OF_MEAN = 0.45
"""Most that a plain launch takes, relative to the mean launch, in measured runs: 0.33 (GPT-2) to 0.45 (Llama-1B,
Mistral-7B)."""
_OF_ENCODER = 0.33
"""The same for runs in which hardly any op follows another of its module, so that they contain no plain launch. Layers
of ViT-large (H200) take 34 µs more in int8 with seven more launches, and 180 µs in LLM.int8 with 33."""
_OF_MACHINE = 0.35
"""Most that a plain launch takes, relative to GPT-2's mean launch on the machine with this GPU: plain launches of 5 µs
beside an H200 are within it."""


@remembered
def with_plain_launch(base: Baseline) -> Baseline:
    """Return the run with the host time of a plain launch fixed, so that later transforms do not change it."""
    return base if base.plain_launch_ns is not None else replace(base, plain_launch_ns=plain_launch_ns(base))


def plain_launch_ns(base: Baseline) -> float:
    """Return the host time of one more launch in this run, in nanoseconds.

    The host time of a modelled run takes few distinct values; there, it is at most a fraction of the mean.
    """
    if base.plain_launch_ns is not None:
        return base.plain_launch_ns
    host = base.ops.host_ns.to_numpy()
    plain, mean = float(np.quantile(host, _PLAIN)), float(host.mean())
    if base.source.kind == "modelled":
        return min(plain, _OF_MEAN * mean)
    return min(plain, max(_OF_ENCODER * mean, _OF_MACHINE * base.gpu.host_op_us.expected * 1e3))
