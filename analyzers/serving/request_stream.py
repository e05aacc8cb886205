"""The requests of a serving run: from a CSV file, all at once, from a number of users, or at random times."""

import csv
import math
import random
from dataclasses import dataclass
from pathlib import Path

from tracekit.analyzers.core import InputError, reading

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
_PROMPT = ("prompt_tokens", "num_prefill_tokens", "input_tokens", "prompt_len", "input_len")
_OUTPUT = ("output_tokens", "num_decode_tokens", "output_len", "completion_tokens")
DRAWN = 200
_ROUNDS = 10
"""Requests of each user of a closed stream, as in the usual benchmark of serving."""
_SHORTEST = 0.8
"""The shortest length of a closed stream, relative to the given one, likewise."""
_MOST = 100_000
_MOST_USERS = 8192
_FORMS = "closed:USERS,PROMPT,OUTPUT, batch:FILE, poisson:RATE,PROMPT,OUTPUT, or a CSV file with " + ", ".join(COLUMNS)
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
    """Return the requests of closed:USERS,PROMPT,OUTPUT, batch:FILE, poisson:RATE,PROMPT,OUTPUT, or a file.

    Raises InputError for anything else.
    """
    kind, _, rest = text.partition(":")
    if kind == "closed":
        return _closed(text, rest, random.Random(seed))
    if kind == "poisson":
        return Stream(_drawn(text, rest, random.Random(seed)))
    made = _read(Path(rest if kind == "batch" and rest else text), kind == "batch")
    if not made:
        raise InputError(f"{text} has no requests.", "It is empty.", _HINT)
    return Stream(tuple(sorted(made, key=lambda each: each.arrival_s)), at_once=kind == "batch")


def _numbers(text: str, rest: str) -> tuple[float, int, int]:
    try:
        first, prompt, output = (float(part) for part in rest.split(","))
    except ValueError as error:
        raise InputError(f"{text} cannot be read.", f"{error}.", _HINT) from error
    if not (0 < first < math.inf and 1 <= prompt < 1e6 and 1 <= output < 1e6):
        why = "The first number and both lengths are above 0, and lengths below a million tokens."
        raise InputError(f"{text} cannot be served.", why, _HINT)
    return first, int(prompt), int(output)


def _closed(text: str, rest: str, draw: random.Random) -> Stream:
    """Return the requests of users that send a request when the previous one is done."""
    users, prompt, output = _numbers(text, rest)
    if users != int(users) or users > _MOST_USERS:
        raise InputError(f"{text} cannot be served.", f"Users are a whole number up to {_MOST_USERS:,}.", _HINT)
    count = _ROUNDS * int(users)

    def length(most: int) -> int:
        return draw.randint(max(1, round(_SHORTEST * most)), most)

    return Stream(tuple(Request(0.0, length(prompt), length(output)) for _ in range(count)), users=int(users))


def _drawn(text: str, rest: str, draw: random.Random) -> tuple[Request, ...]:
    """Return 200 requests with exponential times between arrivals and uniform lengths within 50 % of their means."""
    rate, prompt, output = _numbers(text, rest)
    now, made = 0.0, list[Request]()
    for _ in range(DRAWN):
        lengths = (max(1, round(mean * draw.uniform(0.5, 1.5))) for mean in (prompt, output))
        made.append(Request(now, *lengths))
        now += draw.expovariate(rate)
    return tuple(made)


def _read(path: Path, at_once: bool) -> list[Request]:
    with reading(f"{path} cannot be read.", _HINT), path.open(newline="", encoding="utf-8") as file:
        try:
            rows = list(csv.DictReader(file))[: _MOST + 1]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{path} is not a table of requests.", f"{error}.", _HINT) from error

    def arrival(row: dict[str, str]) -> float:
        return 0.0 if at_once else float(row[COLUMNS[0]])

    try:
        prompt, output = _column(rows, _PROMPT), _column(rows, _OUTPUT)
        made = [Request(arrival(row), int(row[prompt]), int(row[output])) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        why = f"It needs the columns {', '.join(COLUMNS[at_once:])}, with numbers."
        raise InputError(f"{path} is not a table of requests.", why, _HINT) from error
    if len(made) > _MOST or any(_impossible(each) for each in made):
        why = f"It has more than {_MOST:,} rows, a time that is negative, or a request without tokens."
        raise InputError(f"{path} cannot be served.", why, _HINT)
    return made


def _column(rows: list[dict[str, str]], names: tuple[str, ...]) -> str:
    """Return the first of the names that the rows have, or the usual one."""
    return next((name for name in names if rows and name in rows[0]), names[0])


def _impossible(request: Request) -> bool:
    return not 0 <= request.arrival_s < 1e9 or min(request.prompt_tokens, request.output_tokens) < 1
