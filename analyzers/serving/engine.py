"""Simulates an engine pass by pass: which requests decode, which prompts are processed, what is in the cache.

Passes between two events (a request arrives, delivers a first token, is done, no longer fits) are one stretch, whose
mean pass has the mean number of tokens in the cache: the time of a pass is linear in it. Requests that decode advance
together, so each is kept with the step at which it ends, and a pass costs the same for one request as for a thousand.
"""

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush

from tracekit.analyzers.serving.declarations import Engine
from tracekit.analyzers.serving.passes import Chunk, PassTimes
from tracekit.analyzers.serving.request_stream import Moment, Run, Served


@dataclass
class Front:
    """A queue of prompts to read and of tokens to send. The GPU does not wait for it; users do."""

    request_s: float
    token_s: float
    free_s: float = 0.0
    """Time from which on the process has nothing to do."""

    @classmethod
    def of(cls, engine: Engine) -> "Front":
        return cls(engine.number("front_ms") * 1e-3, engine.number("front_token_us") * 1e-6)

    def take(self, arrival_s: float) -> float:
        """Return when the engine has a request that arrives."""
        self.free_s = max(self.free_s, arrival_s) + self.request_s
        return self.free_s

    def send(self, now_s: float, passes: int, tokens: int) -> float:
        """Return when the tokens of the last of `passes` have been sent, of which each makes `tokens`."""
        once = tokens * self.token_s
        self.free_s = max(self.free_s + passes * once, now_s + once)
        return self.free_s


_LONGEST_STRETCH = 256
INFINITE = float("inf")


class Instance:
    """An engine on the GPUs of one copy of a model. Several together serve a stream (pools.py)."""

    def __init__(self, times: PassTimes, slots: int, front: Front, run: Run):
        of = times.of
        self.times, self.engine, self.slots, self.front, self.run = times, of.engine, slots, front, run
        self.extra, self.room, self.hit = of.tokens_of_a_request, of.tokens_that_fit, of.prefix_hit
        self.polled = 1
        """Passes between two looks for new requests."""
        self.began = 0.0
        """Start of the last pass, when an engine that schedules ahead has chosen the requests of the next."""
        self.only_prompts = False
        """Whether requests go elsewhere with their first token."""
        self.now, self.steps, self.passes, self.sent, self.drafts = 0.0, 0, 0, 0.0, 0.0
        self.coming, self.taken, self.waiting = deque[Served](), deque[Served](), deque[Served]()
        self.reading = list[Served]()
        self.decoding = dict[int, Served]()
        """By order of joining."""
        self.events = list[tuple[int, int, Served]]()
        """Steps at which a request delivers its first token or is done."""
        self.joined = self.idle = 0
        self.held = self.promised = 0.0
        """Tokens in the cache, and tokens that requests in flight may still add."""
        self.done = list[Served]()

    @property
    def load(self) -> int:
        return len(self.coming) + len(self.taken) + len(self.waiting) + len(self.reading) + len(self.decoding)

    @property
    def next_s(self) -> float:
        """When it has something to do; only if it has a load."""
        if self.waiting or self.reading or self.decoding:
            return self.now
        return max(self.now, self._next_s())

    def step(self, until_s: float) -> list[Served]:
        """Run one pass, or as many equal ones as end before `until_s`. Return the requests that are done."""
        self._receive()
        self._make_room()
        self._admit()
        chunks = self._chunks()
        if chunks:
            self._mixed_pass(chunks)
        elif self.decoding:
            self._stretch(until_s)
        self._deliver()
        count = len(self.decoding) + len(self.reading)
        if not self.only_prompts:
            self.run.moments.append(Moment(self.now, count, len(self.waiting), self.held / self.room))
        done, self.done = self.done, []
        return done

    def _receive(self) -> None:
        """Take in what has arrived. Some engines look only once in several passes."""
        busy = self.waiting or self.reading or self.decoding
        if not busy and not self.taken:
            self.now = max(self.now, self.coming[0].arrival_s)
        self._take()
        if not busy:
            self.now = max(self.now, self.taken[0].ready_s)
        if not busy or self.passes >= self.polled:
            self.passes = 0
            seen = self.began if busy and self.engine.ahead else self.now
            while self.taken and self.taken[0].ready_s <= seen:
                self.waiting.append(self.taken.popleft())

    def _take(self) -> None:
        while self.coming and self.coming[0].arrival_s <= self.now:
            each = self.coming.popleft()
            each.ready_s = self.front.take(each.arrival_s)
            self.taken.append(each)

    def _next_s(self) -> float:
        """Return when the engine has the next request, at the earliest."""
        return self.taken[0].ready_s if self.taken else self.coming[0].arrival_s + self.front.request_s

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
            needed = first.read + first.to_read + 1 + self.extra + self._promise(first)
            if busy and self.held + self.promised + unread + needed > self.room:
                return
            self.waiting.popleft()
            self._let_in(first)

    def _let_in(self, first: Served) -> None:
        """Start with the prompt, or with decoding if another engine has processed the prompt."""
        if not first.made:
            first.read = int(self.hit * (first.request.prompt_tokens - 1))
        self.held += self.extra + first.read
        self.promised += self._promise(first)
        if first.made and first.read:
            self._decode(first)
        else:
            self.reading.append(first)

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
        self.drafts += self.times.of.tokens_of_a_pass
        made, self.drafts = int(self.drafts), self.drafts % 1
        self._spend(decoding, max(0.0, context), 1, [chunk for _, chunk in chunks], made)
        for each, chunk in chunks:
            each.read += chunk.tokens
            self.held += chunk.tokens
            if not each.to_read:
                self.reading.remove(each)
                each.made += 1
                self._decode(each)

    def _decode(self, each: Served) -> None:
        """Start decoding. The pass over the prompt has made the first token."""
        each.since = self.steps
        self.joined += 1
        self.decoding[self.joined] = each
        if each.first_s != each.first_s:
            heappush(self.events, (self.steps, self.joined, each))
        heappush(self.events, (self.steps + self._wanted(each) - each.made, self.joined, each))

    def _wanted(self, each: Served) -> int:
        return 1 if self.only_prompts else each.request.output_tokens

    def _stretch(self, until_s: float) -> None:
        """Let all requests decode until the next event."""
        count = len(self.decoding) + self.idle
        context = self.held / count - self.extra
        steps = min(_LONGEST_STRETCH, max(1, self.events[0][0] - self.steps))
        if self.held + count * steps > self.room:
            steps = max(1, int((self.room - self.held) // count))
        if self.coming or self.taken or until_s < INFINITE:
            once = self.times.seconds(count, context)
            known = self._next_s() if self.coming or self.taken else INFINITE
            seen = (known - self.now) / once + (2 if self.engine.ahead else 1)
            passes = min(max(seen, self.polled - self.passes), (until_s - self.now) / once + 1)
            steps = int(min(steps, max(1.0, passes)))
        before = self.now
        self._spend(count, context, steps, [])
        self.run.decoding_s += self.now - before
        self.run.decoded += steps

    def _spend(self, count: int, context: float, passes: int, chunks: list[Chunk], made: int = 1) -> None:
        """Let time pass: in each of the passes, `count` requests get `made` tokens."""
        steps = passes * made
        parts = self.times.split(count, context + (steps - 1) / 2, chunks)
        for name, seconds in parts.items():
            self.run.parts[name] = self.run.parts.get(name, 0.0) + seconds * passes
        once = sum(parts.values())
        self.began = self.now + once * (passes - 1)
        self.now += once * passes
        self.passes = self.polled if chunks else self.passes + passes
        self.sent = self.front.send(self.now, passes, count * made)
        if count:
            self.steps += steps
            self.held += count * steps
            self.promised -= self.engine.reserve * count * steps
            self.run.between.append((once / made, count * steps))

    def _deliver(self) -> None:
        """Note the first and last tokens that are due, and let users of a closed stream send their next request."""
        while self.events and self.events[0][0] <= self.steps:
            _, place, each = heappop(self.events)
            if self.decoding.get(place) is not each:
                continue
            if each.first_s != each.first_s:
                each.first_s = self.sent
            if each.made + self.steps - each.since >= self._wanted(each):
                self._end(place, each)

    def _end(self, place: int, each: Served) -> None:
        past = self.steps - each.since
        each.read, each.made, each.last_s = each.read + past, self._wanted(each), self.sent
        del self.decoding[place]
        if self.engine.in_flight:
            self.held -= each.read + self.extra
        else:
            self.idle += 1
            if not self.decoding:
                self.held, self.idle = 0.0, 0
        self.done.append(each)
