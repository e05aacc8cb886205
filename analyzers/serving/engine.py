"""Simulates an engine with continuous batching and a paged KV cache, pass by pass.

Each pass generates a token for every running request whose prompt is in the cache, and prefills waiting requests. With
chunked prefill, one pass does both, with a limit on its tokens, and prompts are split. Otherwise a pass either prefills
whole prompts or decodes; prefill has priority. If no page is free, the latest request is preempted: it returns its
pages and is prefilled again.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracekit.analyzers.serving.request_stream import Request

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


PAGE = 16
"""Tokens per page of the KV cache."""


@dataclass(frozen=True)
class Engine:
    """Limits of a pass."""

    times: StepTimes
    pages: int
    """Number of pages in the KV cache."""
    most_requests: int = 256
    most_tokens: int = 2048
    """Maximum number of tokens per pass. Without chunked prefill, a longer prompt has a separate pass."""
    chunked: bool = False


@dataclass
class Served:
    """A request with its state and its generated tokens."""

    request: Request
    read: int = 0
    """Number of tokens in the cache."""
    tokens: list[float] = field(default_factory=list)
    """Time in seconds at which each token was generated."""

    @property
    def to_read(self) -> int:
        """Number of tokens to prefill before the next token: the prompt, and after a preemption also the generated
        tokens."""
        return self.request.prompt_tokens + len(self.tokens) - self.read

    @property
    def decodes(self) -> bool:
        return bool(self.tokens) and self.to_read == 1

    @property
    def done(self) -> bool:
        return len(self.tokens) >= self.request.output_tokens

    @property
    def pages(self) -> int:
        return -(-self.read // PAGE)


@dataclass(frozen=True)
class Moment:
    """The state after a pass."""

    time_s: float
    running: int
    waiting: int
    used_pages: int


@dataclass(frozen=True)
class Run:
    served: list[Served]
    refused: int
    """Number of requests whose tokens do not fit an empty cache."""
    moments: list[Moment]
    put_off: int
    """Number of preemptions, in which a request returned its pages."""


def simulate(requests: Sequence[Request], engine: Engine) -> Run:
    """Serve all requests, and return the time of each token."""
    fitting = [each for each in requests if _whole(each) <= engine.pages]
    coming, waiting = deque(Served(each) for each in fitting), deque[Served]()
    running: list[Served] = []
    served, moments, put_off, now = list(coming), list[Moment](), 0, 0.0
    while coming or waiting or running:
        while coming and coming[0].request.arrival_s <= now:
            waiting.append(coming.popleft())
        if not waiting and not running:
            now = coming[0].request.arrival_s
            continue
        put_off += _make_room(running, waiting, engine)
        reading = _admit(running, waiting, engine)
        decoding = [each for each in running if each.decodes] if engine.chunked or not reading else []
        now += _pass_time(engine, decoding, sum(reading.values()))
        _advance(decoding, running, reading, now)
        running[:] = [each for each in running if not each.done]
        moments.append(Moment(now, len(running), len(waiting), sum(each.pages for each in running)))
    return Run(served, len(requests) - len(fitting), moments, put_off)


def _whole(request: Request) -> int:
    return -(-(request.prompt_tokens + request.output_tokens) // PAGE)


def _make_room(running: list[Served], waiting: deque[Served], engine: Engine) -> int:
    """Preempt the latest requests until each of the others can generate one more token."""
    put_off = 0
    while len(running) > 1 and sum(-(-(each.read + 1) // PAGE) for each in running) > engine.pages:
        last = running.pop()
        last.read = 0
        waiting.appendleft(last)
        put_off += 1
    return put_off


def _admit(running: list[Served], waiting: deque[Served], engine: Engine) -> dict[int, int]:
    """Return the prompts of this pass, by their index in `running`, and the number of tokens to prefill for each."""
    budget = engine.most_tokens - (sum(each.decodes for each in running) if engine.chunked else 0)
    free = engine.pages - sum(-(-(each.read + 1) // PAGE) for each in running)
    reading: dict[int, int] = {}
    for place, each in enumerate(running):
        if not each.decodes and budget > 0:
            reading[place] = min(each.to_read, budget)
            budget -= reading[place]
    while waiting and len(running) < engine.most_requests:
        size, needed = waiting[0].to_read, -(-(waiting[0].to_read + 1) // PAGE)
        fits = budget > 0 if engine.chunked else size <= budget or not reading
        if needed > free or not fits:
            break
        reading[len(running)] = min(size, budget) if engine.chunked else size
        budget, free = budget - reading[len(running)], free - needed
        running.append(waiting.popleft())
    return reading


def _pass_time(engine: Engine, decoding: list[Served], prompt_tokens: int) -> float:
    context = sum(each.read for each in decoding) / len(decoding) if decoding else 0.0
    return engine.times.mixed(len(decoding), context, prompt_tokens)


def _advance(decoding: list[Served], running: list[Served], reading: dict[int, int], now: float) -> None:
    for each in decoding:
        each.read += 1
        each.tokens.append(now)
    for place, size in reading.items():
        each = running[place]
        each.read += size
        if each.to_read == 0:
            each.tokens.append(now)
