"""Serves a stream with one engine, or with a pool of engines that process prompts and one of engines that decode.

The engine that is furthest behind takes the next step, so that what it hands over never comes late to another.
"""

from bisect import insort
from collections import deque

from tracekit.analyzers.serving.deployment import Deployment
from tracekit.analyzers.serving.engine import INFINITE, Front, Instance
from tracekit.analyzers.serving.passes import PassTimes
from tracekit.analyzers.serving.request_stream import Request, Run, Served, Stream


def simulate(times: PassTimes, stream: Stream) -> Run:
    """Serve all requests of a stream."""
    return _Pools(times, stream).served()


class _Pools:
    def __init__(self, times: PassTimes, stream: Stream):
        self.of = of = times.of
        fitting = [each for each in stream.requests if _tokens(each, of) <= of.tokens_that_fit]
        self.run = Run([Served(each, each.arrival_s) for each in fitting], len(stream.requests) - len(fitting))
        slots = of.engine.most_requests
        if not of.engine.paged and stream.requests:
            slots = max(1, min(slots, int(of.tokens_that_fit // (stream.longest + of.tokens_of_a_request))))
        front = Front(0.0, 0.0) if stream.at_once else Front.of(of.engine)

        def engines(count: int, request_s: float) -> list[Instance]:
            return [Instance(times, slots, Front(request_s, front.token_s), self.run) for _ in range(count)]

        self.first = engines(of.pools[0] if of.pools else 1, front.request_s)
        self.second = engines(of.pools[1], 0.0) if of.pools else []
        for each in self.first:
            each.polled, each.only_prompts = of.engine.passes_between_looks(stream.users), bool(of.pools)
        self.later = deque(self.run.served[stream.users :] if stream.users else ())
        for number, request in enumerate(self.run.served[: stream.users or None]):
            self.first[number % len(self.first)].coming.append(request)

    def served(self) -> Run:
        while loaded := [each for each in (*self.first, *self.second) if each.load]:
            behind = min(loaded, key=lambda each: each.next_s)
            until = min((each.next_s for each in loaded if each is not behind), default=INFINITE)
            for done in behind.step(until):
                self._hand_on(done)
        self.run.moments.sort(key=lambda moment: moment.time_s)
        return self.run

    def _hand_on(self, each: Served) -> None:
        """Send the cache of a request to an engine that decodes; if it is done, let its user send the next one."""
        if each.made < each.request.output_tokens:
            each.ready_s = each.last_s + self.of.transfer_s(each.read)
            insort(min(self.second, key=_load).taken, each, key=lambda one: one.ready_s)
        elif self.later:
            following = self.later.popleft()
            following.arrival_s = each.last_s
            insort(min(self.first, key=_load).coming, following, key=lambda one: one.arrival_s)


def _load(engine: Instance) -> int:
    return engine.load


def _tokens(request: Request, of: Deployment) -> float:
    return request.prompt_tokens + request.output_tokens + of.tokens_of_a_request
