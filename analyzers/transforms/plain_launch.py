"""The unit of what an optimization adds to the host: a launch without a module call or Python before it."""

from dataclasses import replace

import numpy as np

from tracekit.analyzers.prediction.baseline import Baseline

_PLAIN = 0.25
"""This part of a run's launches take no longer than a plain one: no module call, no Python before them."""

_OF_MEAN = 0.45
"""What a plain launch takes of the mean one at most, in measured runs: 0.33 (GPT-2) to 0.45 (Llama-1B, Mistral-7B)."""
_OF_ENCODER = 0.33
"""The same where hardly an op follows another of its module, so that the run shows no plain one: layers of ViT-large
(H200) take 34 us more in int8 for seven launches, and 180 in LLM.int8 for 33."""
_OF_MACHINE = 0.35
"""The same of GPT-2's mean one on machines that the GPU sits in: plain ones of 5 us beside an H200 are not too long."""


def with_plain_launch(base: Baseline) -> Baseline:
    """The run, which keeps what a plain launch takes in it whatever is then done to it."""
    return base if base.plain_launch_ns is not None else replace(base, plain_launch_ns=plain_launch_ns(base))


def plain_launch_ns(base: Baseline) -> float:
    """Host time of one more launch in this run. A modelled host knows few prices: there, at most a part of the mean."""
    if base.plain_launch_ns is not None:
        return base.plain_launch_ns
    host = base.ops.host_ns.to_numpy()
    found, mean = float(np.quantile(host, _PLAIN)), float(host.mean())
    if base.source.kind == "modelled":
        return min(found, _OF_MEAN * mean)
    return min(found, max(_OF_ENCODER * mean, _OF_MACHINE * base.gpu.host_op_us.expected * 1e3))
