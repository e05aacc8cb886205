"""Deployments beside the one that is asked for: steps to it, those that differ in one thing, and those of a search."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.serving.declarations import DTYPES, Format
from tracekit.analyzers.serving.deployment import Deployment
from tracekit.analyzers.serving.model import Model

_TOKENS = (2048, 4096, 8192, 16384)
_TENSORS = (1, 2, 4, 8)
_FP8 = (8, 9)


def ladder(of: Deployment, prefix_hit: float, drafted: int, acceptance: float) -> Iterator[tuple[str, Deployment]]:
    """Yield a deployment for each step from a batch that waits for its longest request, each with those before it."""
    engine = replace(of.engine, paged=False, in_flight=False, mixed=False, chunked=False, reserve=0.0)
    plain = replace(of, engine=engine, prefix_hit=0.0, drafted=0)
    yield "static batching", plain
    in_flight = replace(plain, engine=replace(of.engine, paged=False, reserve=0.0))
    yield "in-flight batching", in_flight
    paged = replace(plain, engine=replace(of.engine, paged=True, in_flight=True))
    yield "paged cache", paged
    shared = replace(paged, prefix_hit=prefix_hit)
    yield f"prefix sharing, {prefix_hit:.0%} of each prompt", shared
    yield (
        f"speculative, {drafted} drafted, {acceptance:.0%} accepted",
        replace(shared, drafted=drafted, acceptance=acceptance),
    )


def settings(of: Deployment) -> Iterator[tuple[str, Deployment]]:
    """Yield each setting of a search: GPUs and how they divide a layer, formats, tokens of a pass, CUDA graphs."""
    formats = [each for each in DTYPES if runs(each, of.gpu)]
    for (tensor, expert, data), dtype, tokens, graphs in product(_divisions(of.model), formats, _TOKENS, (True, False)):
        engine = replace(of.engine, most_tokens=tokens, graphs=of.engine.graphs if graphs else ())
        name = f"{divided(tensor, expert, data)}, {dtype}, {tokens:,} tokens a pass" + ("" if graphs else ", no graphs")
        yield name, with_format(replace(of, engine=engine, tensor=tensor, expert=expert, data=data), dtype)


def divided(tensor: int, expert: int, data: int) -> str:
    """Return how a layer is divided, in the words of the command's options."""
    return f"tp {tensor}" + (f", ep {expert}" if expert > 1 else "") + (f", dp {data}" if data > 1 else "")


def _divisions(model: Model) -> Iterator[tuple[int, int, int]]:
    """Yield GPUs, groups of whole experts, and copies of the attention: its heads are divided, or with experts the
    experts, and with a latent, of which each GPU would hold all, the requests."""
    attention = model.layers[-1].attention
    for tensor in _TENSORS:
        if tensor <= attention.heads:
            yield tensor, 1, 1
        if tensor > 1 and any(each.feed_forward.experts >= tensor for each in model.layers):
            yield tensor, tensor, tensor if attention.latent else 1


def with_format(of: Deployment, dtype: str) -> Deployment:
    return replace(of, format=Format(dtype, of.engine.cache[dtype]))


def runs(dtype: str, gpu: GPU) -> bool:
    """Return whether a GPU multiplies in a format, or unpacks it."""
    return dtype in ("bf16", "int4") or gpu.compute_capability >= (_FP8 if dtype == "fp8" else (10, 0))


def pareto(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return which points are not worse in both (rate of a GPU, time between tokens) than another one."""
    return [
        not any(rate >= own_rate and time <= own_time and (rate, time) != (own_rate, own_time) for rate, time in points)
        for own_rate, own_time in points
    ]


def changes_of(of: Deployment) -> Iterator[tuple[str, Deployment]]:
    """Yield deployments that differ in the number of GPUs, or in the format."""
    for tensor in (of.tensor * 2, of.tensor * 4):
        if tensor <= 8 and tensor <= of.model.layers[0].attention.heads:
            yield f"tp {tensor}", replace(of, tensor=tensor)
    if of.engine.paged and not of.pools:
        yield "prompts and decoding on GPUs of their own", replace(of, pools=(1, 1))
    for dtype in ("fp8", "nvfp4", "int4"):
        smaller = with_format(of, dtype)
        if runs(dtype, of.gpu) and smaller.weight_bytes < of.weight_bytes:
            yield dtype, smaller
