"""Serving engines as declarations (engines.toml): what they do in a pass, and the constants of kernels and host."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tracekit.analyzers.core import Interval, toml_table
from tracekit.analyzers.cost import GPU, Precision
from tracekit.analyzers.serving.model import Model

ENGINES = Path(__file__).parent / "engines.toml"
DTYPES = ("bf16", "fp8", "nvfp4", "int4")
_SCALES = {"bf16": 0.0, "fp8": 0.0, "nvfp4": 1 / 16, "int4": 1 / 16}
"""Bytes of scales for each weight: one of 8 bits for 16 values, or one of 16 bits for 32."""
_BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5, "int4": 0.5}


class Width(NamedTuple):
    """Ends of an interval, relative to what is expected."""

    low: float
    high: float

    def around(self, expected: float) -> Interval:
        return Interval(expected * self.low, expected, expected * self.high)


@dataclass(frozen=True)
class Format:
    """The number formats of weights, products and cache."""

    dtype: str
    cache_bytes: float = 2.0
    """Bytes of a value of the cache."""

    def _of(self, model: Model, routed: bool) -> str:
        return "bf16" if model.experts_only and not routed and self.dtype in ("nvfp4", "int4") else self.dtype

    def weight_bytes(self, model: Model, routed: bool) -> float:
        dtype = self._of(model, routed)
        return _BYTES[dtype] + _SCALES[dtype]

    def product(self, model: Model, routed: bool, gpu: GPU) -> tuple[Precision, float | None]:
        """Return the precision of a product, and the bytes of a weight if its kernel unpacks the weights."""
        dtype, stored = self._of(model, routed), self.weight_bytes(model, routed)
        wanted: Precision = {"bf16": "bf16", "fp8": "fp8", "nvfp4": "fp4", "int4": "int4"}[dtype]  # type: ignore[assignment]
        if wanted == "bf16" or (wanted in ("fp8", "fp4") and gpu.runs_as(wanted) == wanted):
            return wanted, None
        return "bf16", stored


@dataclass(frozen=True)
class Engine:
    """What an engine does, and its constants."""

    id: str
    title: str
    paged: bool
    """Whether the cache is in pages, so that requests take what they use."""
    in_flight: bool
    """Whether requests join and leave between passes; otherwise a batch is served as a whole."""
    mixed: bool
    """Whether a pass holds both prompts and requests that decode; otherwise prompts come first."""
    chunked: bool
    """Whether prompts are split at the limit of tokens."""
    most_tokens: int
    most_requests: int
    graphs: tuple[int, ...]
    """Batch sizes that CUDA graphs are recorded for."""
    memory: float
    """Part of the GPU's memory that the engine takes."""
    reserve: float
    """Part of a request's output that must be free for it to be admitted."""
    cache: Mapping[str, float]
    """Bytes of a value of the cache by dtype of the weights."""
    constants: Mapping[str, Interval]

    intervals: Mapping[str, Mapping[str, Width]]
    """Widths of results by kind of run, from points that the constants were not fitted on."""
    ahead: bool = False
    """Whether the next pass is scheduled when one starts, so that what arrives meanwhile joins one pass later."""
    memory_of_rest: bool = False
    """Whether that is a part of what the weights leave, and not of all."""
    polled: tuple[tuple[int, int], ...] = ((0, 1),)
    """Numbers of users, and the passes after which the engine looks for new requests from that many users on."""

    def widths(self, experts: bool, at_once: bool) -> Mapping[str, Width]:
        return self.intervals["batch" if at_once else "experts" if experts else "dense"]

    def number(self, name: str) -> float:
        return self.constants[name].expected

    def passes_between_looks(self, users: int) -> int:
        return max((least, passes) for least, passes in self.polled if least <= users)[1]

    def graph_size(self, requests: int) -> int:
        """Return the batch size of the graph that a pass of `requests` replays; 0: none."""
        place = bisect_left(self.graphs, requests)
        return self.graphs[place] if requests and place < len(self.graphs) else 0

    def with_numbers(self, values: Mapping[str, float]) -> "Engine":
        changed = {name: Interval(value, value, value) for name, value in values.items()}
        return replace(self, constants={**self.constants, **changed})


@cache
def all_engines() -> dict[str, Engine]:
    """Return every engine of engines.toml, by id."""
    table = toml_table(ENGINES)
    shared, widths = table.pop("kernels"), table.pop("intervals")
    intervals = {kind: {name: Width(*ends) for name, ends in row.items()} for kind, row in widths.items()}
    return {name: _engine(name, row | {"intervals": intervals}, shared) for name, row in table.items()}


def _engine(name: str, row: dict[str, Any], shared: Mapping[str, Any]) -> Engine:
    constants = {**shared, **row.pop("constants", {})}
    sizes = _graph_sizes(row.pop("graphs"))
    intervals = {key: Interval(one["low"], one["value"], one["high"]) for key, one in constants.items()}
    return Engine(id=name, graphs=sizes, constants=intervals, **row)


def _graph_sizes(most: int) -> tuple[int, ...]:
    """Return 1, 2, 4, and the multiples of 8 up to `most`."""
    return tuple(size for size in (1, 2, 4, *range(8, most + 1, 8)) if size <= most)
