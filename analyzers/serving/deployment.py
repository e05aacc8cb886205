"""A model on GPUs: how its layers are divided, in which formats, and what of the memory is left for the cache.

Beside the deployment that is asked for are steps to it, those that differ in one thing, and those of a search.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.serving.declarations import DTYPES, Engine, Format
from tracekit.analyzers.serving.model import Attention, Model, weights

ACTIVATION_BYTES = 2
"""Bytes of an activation outside of products."""
STATE_BYTES = 4
INDEX_BYTES = 1
_STACKED = ((6, 0), (7, 0), (8, 0), (9, 0), (10, 0), (10, 3))
"""Compute capabilities of GPUs with HBM."""
_REPORTED = 0.995


@dataclass(frozen=True)
class Fitted:
    """What a trace of the running engine says: recorded by modelled time of each part, and seconds of the host."""

    factors: Mapping[str, float]
    host_s: float
    """Of a pass without prompts."""
    prompts_host_s: float


@dataclass(frozen=True)
class Deployment:
    """A model on GPUs, with the formats of its weights and cache."""

    model: Model
    gpu: GPU
    engine: Engine
    format: Format
    tensor: int = 1
    """GPUs that divide every layer."""
    expert: int = 1
    """Of these, the groups among which whole experts are divided."""
    data: int = 1
    """Copies of the attention, each with a part of the requests (data-parallel attention)."""
    prefix_hit: float = 0.0
    """Part of each prompt that is in the cache already."""
    drafted: int = 0
    """Tokens that are drafted for each pass (speculative decoding)."""
    acceptance: float = 0.0
    """Chance that a drafted token is accepted when all before it are."""
    pools: tuple[int, int] | None = None
    """Copies of the model that process prompts, and copies that decode; None: one copy does both."""

    fitted: Fitted | None = None

    @property
    def gpus(self) -> int:
        return self.tensor * (sum(self.pools) if self.pools else 1)

    def transfer_s(self, tokens: int) -> float:
        """Return the seconds in which each GPU sends its part of a request's cache to another pool."""
        return (tokens * self.cache_bytes + self.request_bytes) / (self.engine.number("transfer_gbs") * 1e9)

    @property
    def tokens_of_a_pass(self) -> float:
        """Return how many tokens a pass makes for each request that decodes."""
        kept = self.acceptance
        return (1 - kept ** (self.drafted + 1)) / (1 - kept) if self.drafted else 1.0

    @property
    def attention_tensor(self) -> int:
        return max(1, self.tensor // self.data)

    @property
    def cache_bytes(self) -> float:
        """Bytes of the cache on each GPU for a token of a layer that sees all tokens."""
        return self._cached(False)

    @property
    def request_bytes(self) -> float:
        """Bytes on each GPU of states and windows, which do not grow with a request."""
        return self._cached(True)

    def _cached(self, of_request: bool) -> float:
        total = 0.0
        for count, attention, _ in self.model.layers:
            of_token = self.token_bytes(attention)
            windowed = bool(attention.window) and not attention.indexed
            if of_request:
                state = STATE_BYTES * attention.state / min(self.attention_tensor, attention.heads)
                total += count * (state + (attention.window * of_token if windowed else 0))
            elif not windowed:
                total += count * (of_token + INDEX_BYTES * attention.indexed)
        return total

    def token_bytes(self, attention: Attention) -> float:
        """Return the bytes that a token of a layer takes in a GPU's cache. A latent is on every GPU."""
        parts = 1 if attention.latent else min(self.attention_tensor, attention.kv_heads)
        return attention.cached * self.format.cache_bytes / parts

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights on each GPU."""
        model, total = self.model, 0.0
        for count, attention, feed_forward in model.layers:
            total += (
                count * weights(attention.matrices) * self.format.weight_bytes(model, False) / self.attention_tensor
            )
            total += count * weights(feed_forward.matrices) * self.format.weight_bytes(model, False) / self.tensor
            routed = weights(feed_forward.expert) * feed_forward.experts
            total += count * routed * self.format.weight_bytes(model, True) / self.tensor
        return total + (1 if model.tied else 2) * model.vocabulary * model.hidden * ACTIVATION_BYTES / self.tensor

    @property
    def tokens_that_fit(self) -> float:
        """Tokens of the cache over all copies of the attention."""
        return self.data * self.cache_room / self.cache_bytes if self.cache_bytes else 1e9

    @property
    def tokens_of_a_request(self) -> float:
        """States and windows of a request, as tokens."""
        return self.request_bytes / self.cache_bytes if self.cache_bytes else 0.0

    @property
    def cache_room(self) -> float:
        """Bytes of the cache on each GPU; negative if the weights do not fit."""
        whole, share = visible_bytes(self.gpu), self.engine.memory
        taken = self.weight_bytes + self.engine.number("workspace_gb") * 1e9
        return share * (whole - taken) if self.engine.memory_of_rest else share * whole - taken


def visible_bytes(gpu: GPU) -> float:
    """Return the bytes that a driver reports: gigabytes of stacked memory are binary; error correction takes a part of
    other memories."""
    stacked = gpu.compute_capability in _STACKED or gpu.vendor != "nvidia"
    return gpu.memory_gb * (_REPORTED * 2**30 if stacked else 1e9)


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
