"""A model on GPUs: how its layers are divided, in which formats, and what of the memory is left for the cache."""

from collections.abc import Mapping
from dataclasses import dataclass

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.serving.declarations import Engine, Format
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
