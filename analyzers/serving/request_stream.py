"""The requests of a serving run: from a CSV file, all at once, from a number of users, or at random times; and what a
simulation gives: requests with their times, the state after each pass, and sums.
"""

import csv
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tracekit.analyzers.core import InputError, reading

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
_ARRIVAL = ("arrival_s", "timestamp", "arrived_at")
_PROMPT = (
    *("prompt_tokens", "num_prefill_tokens", "input_tokens", "prompt_len", "input_len"),
    *("input_length", "request_tokens", "contexttokens"),
)
_OUTPUT = (
    *("output_tokens", "num_decode_tokens", "output_len", "completion_tokens"),
    *("output_length", "response_tokens", "generatedtokens"),
)
"""Names of columns in published records of requests, in lower case: vidur, BurstGPT, Azure, benchmarks of engines."""
DRAWN = 200
_ROUNDS = 10
"""Requests of each user of a closed stream, as in the usual benchmark of serving."""
_SHORTEST = 0.8
"""The shortest length of a closed stream, relative to the given one, likewise."""
_SPREAD = 0.5
"""Half of the range of lengths at random times, relative to the given ones."""
_LONGEST = 10**6
_WIDEST = 5.0
_MOST = 100_000
_MOST_USERS = 8192
_FORMS = (
    "closed:USERS,PROMPT,OUTPUT or closed:USERS,FILE, poisson:RATE,PROMPT,OUTPUT or poisson:RATE,FILE, batch:FILE, "
    "or a CSV file with " + ", ".join(COLUMNS)
)
_HINT = f"Give {_FORMS}."


@dataclass(frozen=True)
class Request:
    """A request: its arrival time, and the number of prompt tokens and requested tokens."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Stream:
    """Requests by arrival. With a number of users, each user's next request arrives when the last one is done."""

    requests: tuple[Request, ...]
    users: int = 0
    at_once: bool = False
    """Whether all requests arrive together, as a batch."""

    @property
    def longest(self) -> int:
        return max(each.prompt_tokens + each.output_tokens for each in self.requests)


def stream(text: str, seed: int = 0) -> Stream:
    """Return the requests of closed:USERS,LENGTHS, poisson:RATE,LENGTHS, batch:FILE, or a file. LENGTHS are
    PROMPT,OUTPUT, each like 1024, 100-900 (uniform) or 1024~0.5 (log-normal), or a file to draw requests from.

    Raises InputError for anything else.
    """
    kind, _, rest = text.partition(":")
    if kind == "closed":
        return _closed(text, rest, random.Random(seed))
    if kind == "poisson":
        return Stream(_drawn(text, rest, random.Random(seed)))
    if not text.strip():
        raise InputError("There are no requests.", "Their stream is empty.", _HINT)
    made = _read(Path(rest if kind == "batch" and rest else text), kind == "batch")
    return Stream(tuple(sorted(made, key=lambda each: each.arrival_s)), at_once=kind == "batch")


class _Length(NamedTuple):
    """Lengths in tokens: uniform from `low` to `high`, or log-normal with the mean `high` and a relative `spread`."""

    low: int
    high: int
    spread: float = 0.0

    def drawn(self, draw: random.Random) -> int:
        if not self.spread:
            return draw.randint(self.low, self.high)
        sigma = math.sqrt(math.log1p(self.spread**2))
        return max(1, min(round(draw.lognormvariate(math.log(self.high) - sigma**2 / 2, sigma)), _LONGEST - 1))


def _length(text: str, low: float, high: float) -> _Length:
    """Return the lengths of 1024, 100-900 or 1024~0.5. Raises ValueError for anything else."""
    mean, spread, relative = text.partition("~")
    first, dash, last = mean.partition("-")
    ends = (_number(first), _number(last)) if dash else (low * _number(mean), high * _number(mean))
    wide = _number(relative) if spread else 0.0
    if not (_number(first) >= 1 and ends[0] <= ends[1] < _LONGEST and 0 <= wide <= _WIDEST) or (dash and spread):
        raise ValueError(f"{text} is no length, or none from 1 to a million tokens")
    return _Length(round(_number(mean)), round(_number(mean)), wide) if spread else _Length(*map(_whole, ends))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no number" if text else "A number is missing") from error


def _whole(tokens: float) -> int:
    return max(1, round(tokens))


_Draw = Callable[[], tuple[int, int]]


def _first(text: str, rest: str, low: float, high: float, draw: random.Random) -> tuple[float, _Draw]:
    """Return the first number, and what draws the lengths of a prompt and an output; a plain length lies from `low` to
    `high` of it."""
    number, _, lengths = rest.partition(",")
    try:
        rate, drawn = _number(number), _lengths(lengths, low, high, draw)
    except ValueError as error:
        raise InputError(f"{text} cannot be read.", f"{error}.", _HINT) from error
    if not 0 < rate < math.inf:
        raise InputError(f"{text} cannot be served.", "Its first number is not above 0.", _HINT)
    return rate, drawn


def _lengths(text: str, low: float, high: float, draw: random.Random) -> _Draw:
    if "," not in text and Path(text).is_file():
        known = _read(Path(text), at_once=True)

        def one() -> tuple[int, int]:
            request = draw.choice(known)
            return request.prompt_tokens, request.output_tokens

        return one
    if text.count(",") != 1:
        raise ValueError("After the first number come the lengths of a prompt and of an output, or a file")
    prompt, output = (_length(each, low, high) for each in text.split(","))
    return lambda: (prompt.drawn(draw), output.drawn(draw))


def _closed(text: str, rest: str, draw: random.Random) -> Stream:
    """Return the requests of users that send a request when the previous one is done."""
    users, lengths = _first(text, rest, _SHORTEST, 1.0, draw)
    if users != int(users) or users > _MOST_USERS:
        raise InputError(f"{text} cannot be served.", f"Users are a whole number up to {_MOST_USERS:,}.", _HINT)
    return Stream(tuple(Request(0.0, *lengths()) for _ in range(_ROUNDS * int(users))), users=int(users))


def _drawn(text: str, rest: str, draw: random.Random) -> tuple[Request, ...]:
    """Return 200 requests with exponential times between arrivals."""
    rate, lengths = _first(text, rest, 1 - _SPREAD, 1 + _SPREAD, draw)
    now, made = 0.0, list[Request]()
    for _ in range(DRAWN):
        made.append(Request(now, *lengths()))
        now += draw.expovariate(rate)
    return tuple(made)


def _read(path: Path, at_once: bool) -> list[Request]:
    """Return the requests of a CSV file, by which the first arrives at 0. Raises InputError if there is none."""
    with reading(f"{path} cannot be read.", _HINT), path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = [_named(row) for row in islice(csv.DictReader(file), _MOST + 1)]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{path} is not a table of requests.", f"{error}.", _HINT) from error
    if not rows:
        raise InputError(f"{path} has no requests.", "It is empty.", _HINT)
    try:
        prompt, output = _column(rows, _PROMPT), _column(rows, _OUTPUT)
        times = [0.0] * len(rows) if at_once else _times([row[_column(rows, _ARRIVAL)] for row in rows])
        made = [Request(at, _count(row[prompt]), _count(row[output])) for at, row in zip(times, rows, strict=True)]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        why = f"It needs the columns {', '.join(COLUMNS[at_once:])}, with numbers."
        raise InputError(f"{path} is not a table of requests.", why, _HINT) from error
    if len(made) > _MOST or any(_impossible(each) for each in made):
        why = f"It has more than {_MOST:,} rows, a time that is negative, or a request without tokens."
        raise InputError(f"{path} cannot be served.", why, _HINT)
    return made


def _named(row: dict[str, str]) -> dict[str, str]:
    return {str(name).strip().lower().replace(" ", "_"): value for name, value in row.items()}


def _column(rows: list[dict[str, str]], names: tuple[str, ...]) -> str:
    """Return the first of the names that the rows have, or the usual one."""
    return next((name for name in names if name in rows[0]), names[0])


def _count(text: str) -> int:
    return int(float(text))


def _times(texts: list[str]) -> list[float]:
    """Return seconds, or where the first is a date, seconds since the first date."""
    try:
        return [float(text) for text in texts]
    except ValueError:
        dates = [datetime.fromisoformat(text.strip()[:26]) for text in texts]
        return [(date - min(dates)).total_seconds() for date in dates]


def _impossible(request: Request) -> bool:
    return not 0 <= request.arrival_s < 1e9 or min(request.prompt_tokens, request.output_tokens) < 1


@dataclass
class Served:
    """A request with its state."""

    request: Request
    arrival_s: float
    ready_s: float = 0.0
    """When the engine has it."""
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
