"""BERT on an A100, as published with transformers' fused attention: how much of the error is the host's."""

from collections.abc import Iterator
from statistics import fmean

from accuracy.chapter import percent, table
from accuracy.published_runs import run
from tracekit.analyzers.predict import Baseline

_GPU, _MODEL = "a100-80gb-sxm", "bert-base-uncased"
_MS = {
    (1, 128): (5.691, 5.421),
    (1, 256): (5.688, 5.523),
    (2, 128): (6.161, 5.545),
    (2, 256): (6.132, 5.558),
    (4, 128): (6.154, 5.532),
    (4, 256): (6.326, 5.987),
}
"""Batch size and tokens -> ms of a forward pass in fp16 with a mask, with eager attention and with sdpa: pull request
28802 of huggingface/transformers."""
_HOSTS, _STEPS = (0.1, 2.0), 40
"""Factors on the host's time between which the implied one is searched, and bisections."""


def section() -> str:
    rows = list(_rows())
    first = rows[0]
    host = _host(*first[1:])
    told = [base.simulate(base.ops, host) / 1e6 / ms - 1 for _, base, ms in rows]
    cells = (
        [name, f"{ms:.2f}", *_modelled(base, ms), f"{error:+.0%}".replace("%", " %")]
        for (name, base, ms), error in zip(rows, told, strict=True)
    )
    assumed, implied = first[1].gpu.host_op_us, host * first[1].gpu.host_op_us.expected
    mean = fmean(map(abs, told[1:]))
    text = (
        f"In fp16 with a mask. The host of an A100 is assumed to take {assumed.expected:.0f} µs per op "
        f"({assumed.low:.0f} to {assumed.high:.0f}), which follows from published tokens per second of GPT-2. This "
        f"machine's host took {implied:.0f} µs: with that value, derived from the first row, the error of the other "
        f"{len(rows) - 1} is {percent(mean, 1)}. The error is thus due to the host, whose speed does not follow from "
        "an op list; `tracekit calibrate` measures it."
    )
    return f"{text}\n\n{table(['run', 'published, ms', 'modelled', 'error', 'with that host'], cells, 3)}"


def _rows() -> Iterator[tuple[str, Baseline, float]]:
    for (batch, tokens), times in _MS.items():
        for attention, ms in zip(("eager", "sdpa"), times, strict=True):
            yield f"batch {batch}, {tokens} tokens, {attention}", _baseline(batch, tokens, attention), ms


def _baseline(batch: int, tokens: int, attention: str) -> Baseline:
    return run(_GPU, _MODEL, "prefill", batch, tokens, "fp16", attention)


def _host(base: Baseline, ms: float) -> float:
    """Return the factor on the host's time with which the modelled step takes as long as the published one."""
    low, high = _HOSTS
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if base.simulate(base.ops, middle) < ms * 1e6 else (low, middle)
    return low


def _modelled(base: Baseline, ms: float) -> list[str]:
    factors = (base.host_range.low, 1.0, base.host_range.high)
    low, expected, high = (base.simulate(base.ops, factor) / 1e6 for factor in factors)
    return [f"{expected:.2f} ({low:.2f} to {high:.2f})", f"{expected / ms - 1:+.0%}".replace("%", " %")]
