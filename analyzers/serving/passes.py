"""Time of one pass of an engine: products over all its tokens, attention over what each request has in the cache,
experts that are touched, sums between GPUs, and the host.

Products have the times of the kernel time model, at the sizes of `_GRID` and interpolated between. The rest are streams
and rates of the data sheet with the constants of engines.toml.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import NamedTuple

import numpy as np

from tracekit.analyzers.cost import ELEMENT_BYTES, Cost, Message, Precision, Product, collective_ns, estimate_ns
from tracekit.analyzers.serving.deployment import ACTIVATION_BYTES, INDEX_BYTES, STATE_BYTES, Deployment
from tracekit.analyzers.serving.model import FeedForward, Layers, Matrix

_GRID = np.array(
    [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192, 16384]
)
_VECTOR = 64
_DRAFT = 0.05
"""Time of drafting a token, relative to a pass: a head of one layer."""
_STATE_FLOPS = 8
"""FLOPs for each value of a recurrent layer's state and each token."""


class Chunk(NamedTuple):
    """Tokens of a prompt in a pass, and its tokens that are in the cache already."""

    tokens: int
    before: int


@dataclass
class PassTimes:
    """Seconds of passes of a deployment."""

    of: Deployment
    _known: dict[int, dict[str, float]] = field(default_factory=dict)
    _sampled: dict[int, float] = field(default_factory=dict)

    def seconds(self, decoding: int, context: float, chunks: Sequence[Chunk] = ()) -> float:
        """Return the seconds of a pass in which `decoding` requests with `context` tokens each on average generate a
        token, and chunks of prompts are processed."""
        return float(sum(self.split(decoding, context, chunks).values()))

    def split(self, decoding: int, context: float, chunks: Sequence[Chunk] = ()) -> dict[str, float]:
        """Return the seconds of a pass by part."""
        engine = self.of.engine
        graph = engine.graph_size(decoding) if not chunks else 0
        rows = max(graph, decoding) * (1 + self.of.drafted)
        tokens = rows + sum(each.tokens for each in chunks)
        parts = self._at(tokens) | {"sampling": self._sampling(rows + len(chunks))}
        parts["cache"] = self._decode_attention(decoding, context)
        parts["prompts"] = self._prompt_attention(chunks)
        device = sum(parts.values())
        parts["host"] = 0.0 if graph else self._launching(device)
        parts["host"] += 1e-6 * (engine.number("pass_us") + engine.number("request_us") * decoding)
        parts["host"] += 1e-6 * engine.number("prompt_us") * len(chunks)
        if self.of.fitted:
            parts = {name: seconds * self.of.fitted.factors.get(name, 1.0) for name, seconds in parts.items()}
            parts["host"] = self.of.fitted.prompts_host_s if chunks else self.of.fitted.host_s
        if self.of.drafted and decoding:
            parts["drafts"] = self.of.drafted * _DRAFT * sum(parts.values())
            made = self.of.tokens_of_a_pass if not chunks else 1.0
            parts = {name: seconds / made for name, seconds in parts.items()}
        return parts

    def _launching(self, device_s: float) -> float:
        """Return the seconds of a pass outside of CUDA graphs in which the GPU waits for launches."""
        launches = 1e-6 * sum(each.copies * self._launches(each) for each in self.of.model.layers)
        gaps = launches * self.of.engine.number("gap_us")
        return max(gaps, launches * self.of.gpu.host_op_us.expected - device_s)

    def _launches(self, layers: Layers) -> float:
        """Return what a pass launches in a layer: more where tokens are routed, and for a latent or a recurrence."""
        number, attention = self.of.engine.number, layers.attention
        routed = number("routed_launches") if layers.feed_forward.experts else 0.0
        unfused = number("unfused_launches") if attention.latent or attention.state else 0.0
        return number("launches") + routed + unfused

    def _at(self, tokens: int) -> dict[str, float]:
        """Return the seconds of what depends on the tokens of a pass alone."""
        if tokens not in self._known:
            beyond = max(1.0, ceil(tokens / self.of.data) / _GRID[-1])
            seconds = {name: beyond * float(np.interp(tokens, _GRID, times)) for name, times in self._tables.items()}
            self._known[tokens] = seconds
        return self._known[tokens]

    @cached_property
    def _tables(self) -> dict[str, np.ndarray]:
        """Return the seconds of what depends on the tokens of a pass alone, at each size of the grid."""
        rows = [self._over_tokens(int(tokens)) for tokens in _GRID]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def _over_tokens(self, tokens: int) -> dict[str, float]:
        parts = dict.fromkeys(("products", "experts", "sums", "glue"), 0.0)
        local = ceil(tokens / self.of.data)
        for layers in self.of.model.layers:
            attention, feed_forward = layers.attention, layers.feed_forward
            products = sum(self._product(local, each, self.of.attention_tensor) for each in attention.matrices)
            products += sum(self._product(tokens, each, self.of.tensor) for each in feed_forward.matrices)
            parts["products"] += layers.copies * products
            parts["experts"] += layers.copies * self._experts(tokens, feed_forward)
            parts["sums"] += layers.copies * self._sums(tokens)
            parts["glue"] += layers.copies * self._glue(tokens, layers)
        return parts

    def _product(self, rows: int, matrix: Matrix, parts: int) -> float:
        """Return the seconds of a product, with the engine's kernels."""
        n, k = _divided(matrix, parts)
        precision, stored = self.of.format.product(self.of.model, False, self.of.gpu)
        cost = _product_cost(1, rows, n, k, precision, stored)
        return estimate_ns(cost, self.of.gpu) * 1e-9 / self._efficiency(cost, precision)

    def _efficiency(self, cost: Cost, precision: Precision) -> float:
        """Return the rate of the engine's kernels relative to the kernel time model, bound by arithmetic or not."""
        gpu, engine = self.of.gpu, self.of.engine
        bound = cost.flops / gpu.sustained_flops(precision) / (cost.bytes / gpu.bandwidth)
        share = 1 / (1 + bound**-2)
        return (
            engine.number(f"stream_{_width(precision)}") ** (1 - share)
            * engine.number(f"rate_{_width(precision)}") ** share
        )

    def _experts(self, tokens: int, feed_forward: FeedForward) -> float:
        """Return the seconds of routed experts: a pass touches E (1 - (1 - k / E)^tokens) of E."""
        if not feed_forward.experts:
            return 0.0
        engine, expert = self.of.engine, min(self.of.expert, feed_forward.experts)
        most, rows = feed_forward.experts, tokens * feed_forward.chosen
        touched = most * (1 - (1 - feed_forward.chosen / most) ** tokens) / expert
        groups = max(1, round(touched))
        each = max(1, round(rows / expert / groups))
        precision, stored = self.of.format.product(self.of.model, True, self.of.gpu)
        seconds = 0.0
        for matrix in feed_forward.expert:
            n, k = _divided(matrix, self.of.tensor / expert)
            cost = _product_cost(groups, each, n, k, precision, stored)
            seconds += (
                estimate_ns(cost, self.of.gpu) * 1e-9 / self._efficiency(cost, precision) * engine.number("experts")
            )
        return seconds + 1e-6 * engine.number("routing_us")

    def _sums(self, tokens: int) -> float:
        """Return the seconds of two sums over the GPUs: kernels of the engine's own for few bytes, NCCL's for many."""
        of, size = self.of, tokens * self.of.model.hidden * ACTIVATION_BYTES
        if of.tensor == 1:
            return 0.0
        message = Message("all-reduce", size, of.tensor)
        seconds = collective_ns(message, of.gpu) * 1e-9
        if of.gpu.nvlink_gbs:
            carried = 2 * (of.tensor - 1) / of.tensor * size / (of.gpu.nvlink_gbs / 2 * 1e9)
            start = of.engine.number("sum_us") + of.engine.number("sum_hop_us") * of.tensor
            seconds = min(seconds, start * 1e-6 + carried / of.engine.number("sum_rate"))
        return 2 * seconds

    def _glue(self, tokens: int, layers: Layers) -> float:
        """Return the seconds of norms, rotary embeddings, activations, quantization and what they move."""
        of, attention, feed_forward = self.of, layers.attention, layers.feed_forward
        qkv = attention.heads * (attention.key_dim + attention.value_dim) / of.attention_tensor
        inner = sum(each.k for each in feed_forward.matrices if each.cut == "k") / of.tensor
        if feed_forward.experts:
            routed = feed_forward.chosen * (feed_forward.expert[-1].k / of.tensor + of.model.hidden / of.expert)
            inner += routed * of.engine.number("routed_glue")
        moved = tokens * ACTIVATION_BYTES * (8 * of.model.hidden + 2 * qkv + 3 * inner)
        rate = of.gpu.bandwidth * of.gpu.copy_efficiency
        return 1e-6 * of.engine.number("layer_us") + of.engine.number("glue") * moved / rate

    def _sampling(self, rows: int) -> float:
        if rows not in self._sampled:
            self._sampled[rows] = self._sample(rows)
        return self._sampled[rows]

    def _sample(self, rows: int) -> float:
        model = self.of.model
        size = _product_cost(1, max(1, rows), max(1, model.vocabulary // self.of.tensor), model.hidden, "bf16", None)
        return estimate_ns(size, self.of.gpu) * 1e-9

    def _decode_attention(self, decoding: int, context: float) -> float:
        """Return the seconds of attention of one query for each request: its keys and values are streamed."""
        if not decoding:
            return 0.0
        of, local = self.of, decoding / self.of.data
        rate = of.gpu.bandwidth * of.gpu.copy_efficiency * of.engine.number("cache_rate")
        flops = of.gpu.sustained_flops("bf16") * of.engine.number("latent_rate")
        seconds = 0.0
        for count, attention, _ in of.model.layers:
            heads = max(1, attention.heads // of.attention_tensor)
            if attention.state:
                moved = 2 * local * heads * attention.key_dim * attention.value_dim * STATE_BYTES
                seconds += count * (moved / rate + of.engine.number("attention_us") * 1e-6)
                continue
            keys = min(context, attention.window) if attention.window else context
            moved = local * (keys * of.token_bytes(attention) + context * attention.indexed * INDEX_BYTES)
            work = 4 * local * keys * heads * (attention.latent or 0)
            seconds += count * (max(moved / rate, work / flops) + of.engine.number("attention_us") * 1e-6)
        return seconds

    def _prompt_attention(self, chunks: Sequence[Chunk]) -> float:
        of, seconds, flops = self.of, 0.0, 0.0
        rate = of.gpu.sustained_flops("bf16") * of.engine.number("prompt_rate")
        for count, attention, _ in of.model.layers if chunks else ():
            heads = max(1, attention.heads // of.attention_tensor)
            if attention.state:
                flops = _STATE_FLOPS * heads * attention.key_dim * attention.value_dim * sum(c.tokens for c in chunks)
            else:
                flops = (
                    2
                    * heads
                    * (attention.key_dim + attention.value_dim)
                    * sum(_pairs(each, attention.window) for each in chunks)
                )
            seconds += count * (flops / of.data / rate + 1e-6 * of.engine.number("attention_us"))
        return seconds


def _pairs(chunk: Chunk, window: int) -> float:
    """Return how many keys the tokens of a chunk see in total."""
    mean = chunk.before + (chunk.tokens + 1) / 2
    return chunk.tokens * (min(mean, window) if window else mean)


def _divided(matrix: Matrix, parts: float) -> tuple[int, int]:
    """Return the sides of a GPU's part of a matrix. Engines pad parts to whole vectors."""
    n, k = (side / (parts if matrix.cut == name else 1) for name, side in (("n", matrix.n), ("k", matrix.k)))
    return ceil(n / _VECTOR) * _VECTOR, ceil(k / _VECTOR) * _VECTOR


def _width(precision: Precision) -> str:
    return {"bf16": "16", "fp16": "16", "fp8": "8", "fp4": "4"}[precision]


def _product_cost(groups: int, m: int, n: int, k: int, precision: Precision, stored: float | None) -> Cost:
    """Return the cost of a product whose weights take `stored` bytes each, or as many as its operands."""
    element = ELEMENT_BYTES[precision]
    held = round(groups * n * k * (element if stored is None else stored))
    read = held + round(groups * m * k * element)
    shape = Product(groups, m, n, k, weight="b")
    return Cost(2 * groups * m * n * k, read, groups * m * n * ACTIVATION_BYTES, "gemm", precision, held, shape)
