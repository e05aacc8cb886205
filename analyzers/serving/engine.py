"""Simulates an engine pass by pass: which requests decode, which prompts are processed, what is in the cache.

Passes between two events (a request arrives, delivers a first token, is done, no longer fits) are one stretch, whose
mean pass has the mean number of tokens in the cache: the time of a pass is linear in it. Requests that decode advance
together, so each is kept with the step at which it ends, and a pass costs the same for one request as for a thousand.
"""

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tracekit.analyzers.serving.passes import Chunk, PassTimes
from tracekit.analyzers.serving.request_stream import Request, Stream

_LONGEST_STRETCH = 256


@dataclass
class Served:
    """A request with its state."""

    request: Request
    arrival_s: float
    made: int = 0
    """Number of generated tokens, as of the step `since`."""
    read: int = 0
    """Number of tokens in the cache, as of the step `since`."""
    since: int = 0
    first_s: float = float("nan")
    last_s: float = float("nan")

    @property
    def to_read(self) -> int:
        """Number of tokens to process before the next one: the prompt, and after a preemption what was generated."""
        return self.request.prompt_tokens + self.made - self.read

    @property
    def waited_s(self) -> float:
        """Time from the arrival to the first token."""
        return self.first_s - self.arrival_s

    @property
    def between_s(self) -> float:
        """Mean time between two tokens."""
        return (self.last_s - self.first_s) / (self.made - 1) if self.made > 1 else float("nan")


@dataclass(frozen=True)
class Moment:
    """The state after a pass."""

    time_s: float
    running: int
    waiting: int
    used: float
    """Part of the room of the cache that is taken."""


@dataclass
class Run:
    served: list[Served]
    refused: int = 0
    """Number of requests that do not fit an empty cache."""
    put_off: int = 0
    """Number of preemptions, in which a request returned its pages."""
    moments: list[Moment] = field(default_factory=list)
    between: list[tuple[float, int]] = field(default_factory=list)
    """Times in seconds between two tokens of a request, and the number of such pairs."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds by part of the passes."""
    decoding_s: float = 0.0
    """Time of the passes without prompts."""
    decoded: int = 0
    """Number of the passes without prompts."""


def simulate(times: PassTimes, stream: Stream) -> Run:
    """Serve all requests of a stream."""
    return _Simulation(times, stream).result()


class _Simulation:
    def __init__(self, times: PassTimes, stream: Stream):
        of = times.of
        self.times, self.engine = times, of.engine
        self.extra, self.room, self.hit = of.tokens_of_a_request, of.tokens_that_fit, of.prefix_hit
        self.streamed = 1 if stream.at_once else of.engine.streamed
        self.slots = of.engine.most_requests
        if not of.engine.paged and stream.requests:
            self.slots = max(1, min(self.slots, int(self.room // (stream.longest + self.extra))))
        fitting = [each for each in stream.requests if self._whole(each) <= self.room]
        self.run = Run([Served(each, each.arrival_s) for each in fitting], len(stream.requests) - len(fitting))
        self.users, self.now, self.steps, self.passes = stream.users, 0.0, 0, 0
        self.later = deque(self.run.served[stream.users :] if stream.users else ())
        self.coming = deque(self.run.served[: stream.users] if stream.users else self.run.served)
        self.waiting, self.reading = deque[Served](), list[Served]()
        self.decoding = dict[int, Served]()
        """By order of joining."""
        self.events = list[tuple[int, int, Served]]()
        """Steps at which a request delivers its first token or is done."""
        self.joined = self.idle = 0
        self.held = self.promised = 0.0
        """Tokens in the cache, and tokens that requests in flight may still add."""

    def _whole(self, request: Request) -> float:
        return request.prompt_tokens + request.output_tokens + self.extra

    def result(self) -> Run:
        while self.coming or self.waiting or self.reading or self.decoding:
            self._receive()
            self._make_room()
            self._admit()
            chunks = self._chunks()
            if chunks:
                self._mixed_pass(chunks)
            else:
                self._stretch()
            self._deliver()
            count = len(self.decoding) + len(self.reading)
            self.run.moments.append(Moment(self.now, count, len(self.waiting), self.held / self.room))
        return self.run

    def _receive(self) -> None:
        """Take in what has arrived. Some engines look only once in several passes."""
        busy = self.waiting or self.reading or self.decoding
        if not busy:
            self.now = max(self.now, self.coming[0].arrival_s)
        if not busy or self.passes >= self.engine.polled:
            self.passes = 0
            while self.coming and self.coming[0].arrival_s <= self.now:
                self.waiting.append(self.coming.popleft())

    def _make_room(self) -> None:
        """Preempt the latest requests until each of the others can generate one more token."""
        while len(self.decoding) > 1 and self.held + len(self.decoding) > self.room:
            last = self.decoding.pop(max(self.decoding))
            past = self.steps - last.since
            last.made, read = last.made + past, last.read + past
            self.held -= read + self.extra
            self.promised -= self._promise(last)
            last.read, last.since = 0, -1
            self.waiting.appendleft(last)
            self.run.put_off += 1

    def _promise(self, each: Served) -> float:
        return self.engine.reserve * (each.request.output_tokens - each.made)

    def _admit(self) -> None:
        """Let requests in while their prompts, and the part of their output that the engine reserves, fit."""
        while self.waiting and len(self.reading) + len(self.decoding) < self.slots:
            if self.decoding and not self.engine.in_flight:
                return
            first, busy = self.waiting[0], bool(self.reading or self.decoding)
            unread = sum(each.to_read for each in self.reading)
            needed = first.to_read + 1 + self.extra + self._promise(first)
            if busy and self.held + self.promised + unread + needed > self.room:
                return
            self.reading.append(self.waiting.popleft())
            self.held += self.extra
            self.promised += self._promise(first)
            if not first.made:
                first.read = int(self.hit * (first.request.prompt_tokens - 1))
                self.held += first.read

    def _chunks(self) -> list[tuple[Served, Chunk]]:
        """Return the prompts of the next pass, in the order of arrival."""
        found = list[tuple[Served, Chunk]]()
        budget = self.engine.most_tokens - (len(self.decoding) if self.engine.mixed else 0)
        for each in self.reading:
            size = min(each.to_read, budget) if self.engine.chunked else each.to_read
            if budget <= 0 or (size > budget and found):
                break
            found.append((each, Chunk(size, each.read)))
            budget -= size
        return found

    def _mixed_pass(self, chunks: list[tuple[Served, Chunk]]) -> None:
        decoding = len(self.decoding) if self.engine.mixed else 0
        read = sum(chunk.before for _, chunk in chunks)
        context = (self.held - read - self.extra * (decoding + len(self.reading))) / decoding if decoding else 0.0
        self._spend(decoding, max(0.0, context), 1, [chunk for _, chunk in chunks])
        for each, chunk in chunks:
            each.read += chunk.tokens
            self.held += chunk.tokens
            if not each.to_read:
                self.reading.remove(each)
                self._join(each)

    def _join(self, each: Served) -> None:
        """Start decoding. The pass over the prompt has made the first token."""
        each.made += 1
        each.since = self.steps
        self.joined += 1
        self.decoding[self.joined] = each
        output = each.request.output_tokens
        if each.first_s != each.first_s:
            deliver = min(self.streamed, output) - each.made
            heappush(self.events, (self.steps + max(0, deliver), self.joined, each))
        heappush(self.events, (self.steps + output - each.made, self.joined, each))

    def _stretch(self) -> None:
        """Let all requests decode until the next event."""
        count = len(self.decoding) + self.idle
        context = self.held / count - self.extra
        steps = min(_LONGEST_STRETCH, max(1, self.events[0][0] - self.steps))
        if self.held + count * steps > self.room:
            steps = max(1, int((self.room - self.held) // count))
        if self.coming:
            once = self.times.seconds(count, context)
            until = max(int((self.coming[0].arrival_s - self.now) / once) + 1, self.engine.polled - self.passes)
            steps = min(steps, max(1, until))
        before = self.now
        self._spend(count, context, steps, [])
        self.run.decoding_s += self.now - before
        self.run.decoded += steps

    def _spend(self, count: int, context: float, steps: int, chunks: list[Chunk]) -> None:
        parts = self.times.split(count, context + (steps - 1) / 2, chunks)
        for name, seconds in parts.items():
            self.run.parts[name] = self.run.parts.get(name, 0.0) + seconds * steps
        once = sum(parts.values())
        self.now += once * steps
        self.passes += steps
        if count:
            self.steps += steps
            self.held += count * steps
            self.promised -= self.engine.reserve * count * steps
            self.run.between.append((once, count * steps))

    def _deliver(self) -> None:
        """Note the first and last tokens that are due, and let users of a closed stream send their next request."""
        while self.events and self.events[0][0] <= self.steps:
            _, place, each = heappop(self.events)
            if self.decoding.get(place) is not each:
                continue
            made = each.made + self.steps - each.since
            if each.first_s != each.first_s:
                each.first_s = self.now
            if made >= each.request.output_tokens:
                self._end(place, each, made)

    def _end(self, place: int, each: Served, made: int) -> None:
        each.read, each.made, each.last_s = each.read + made - each.made, made, self.now
        del self.decoding[place]
        if self.engine.in_flight:
            self.held -= each.read + self.extra
        else:
            self.idle += 1
            if not self.decoding:
                self.held, self.idle = 0.0, 0
        if self.later:
            following = self.later.popleft()
            following.arrival_s = self.now
            self.coming.append(following)
