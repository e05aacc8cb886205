"""Time of an engine's forward pass, interpolated between predicted points."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

Point = tuple[int, int]


@dataclass(frozen=True)
class StepTimes:
    """Seconds per decoding pass by (requests, tokens in the cache of each), and per prefill by its tokens."""

    decode_s: Mapping[Point, float]
    prefill_s: Mapping[int, float]
    overhead_s: float = 0.0
    """Time per pass outside the model: scheduling, page tables, sampling."""

    def decode(self, requests: int, context: float) -> float:
        """Return the time in seconds in which each request generates one token."""
        contexts = sorted({length for _, length in self.decode_s})
        by_context = [self._at_context(requests, length) for length in contexts]
        return _interpolated([float(each) for each in contexts], by_context, context)

    def prefill(self, tokens: int) -> float:
        """Return the time in seconds to prefill a prompt with this many tokens."""
        sizes = sorted(self.prefill_s)
        return _interpolated([float(each) for each in sizes], [self.prefill_s[each] for each in sizes], tokens)

    def mixed(self, requests: int, context: float, prompt_tokens: int) -> float:
        """Return the time in seconds of a pass over prompt tokens and one token of each request.

        Weights are read and kernels are launched once for both. A prompt adds its time beyond a pass over one token.
        """
        if not requests:
            return self.overhead_s + self.prefill(prompt_tokens)
        more = self.prefill(prompt_tokens) - self.prefill(1) if prompt_tokens else 0.0
        return self.overhead_s + self.decode(requests, context) + max(0.0, more)

    def _at_context(self, requests: int, context: int) -> float:
        batches = sorted(batch for batch, length in self.decode_s if length == context)
        times = [self.decode_s[batch, context] for batch in batches]
        return _interpolated([float(each) for each in batches], times, requests)


def _interpolated(places: list[float], values: list[float], at: float) -> float:
    """Return the linear interpolation between the two nearest places; beyond the last, the extrapolation."""
    if len(places) == 1:
        return values[0]
    if at <= places[0]:
        return values[0]
    after = min(bisect_right(places, at), len(places) - 1)
    low, high = places[after - 1], places[after]
    share = (at - low) / (high - low)
    return max(0.0, values[after - 1] + share * (values[after] - values[after - 1]))
