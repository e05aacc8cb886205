"""The requests of a serving run, from a CSV file or drawn at random."""

import csv
import math
import random
from dataclasses import dataclass
from pathlib import Path

from tracekit.analyzers.core import InputError, reading

COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
DRAWN = 200
_MOST = 100_000
_HINT = "Give a CSV file with the columns " + ", ".join(COLUMNS) + ", or poisson:RATE,PROMPT,OUTPUT."


@dataclass(frozen=True)
class Request:
    """A request: its arrival time, and the number of prompt tokens and requested tokens."""

    arrival_s: float
    prompt_tokens: int
    output_tokens: int


def requests(text: str) -> list[Request]:
    """Return the requests of a file, or of poisson:RATE,PROMPT,OUTPUT (requests per second, mean tokens), by arrival.

    Raises InputError for anything else.
    """
    made = _drawn(text) if text.startswith("poisson:") else _read(Path(text))
    if not made:
        raise InputError(f"{text} has no requests.", "It is empty.", _HINT)
    return sorted(made, key=lambda each: each.arrival_s)


def _drawn(text: str) -> list[Request]:
    """Return 200 requests with exponential times between arrivals and uniform lengths within 50 % of their means."""
    try:
        rate, prompt, output = (float(part) for part in text.removeprefix("poisson:").split(","))
        if not (0 < rate < math.inf and 1 <= prompt < 1e6 and 1 <= output < 1e6):
            raise ValueError("a rate and lengths are above 0")
    except ValueError as error:
        raise InputError(f"{text} cannot be read.", f"{error}.", _HINT) from error
    draw, now, made = random.Random(0), 0.0, list[Request]()
    for _ in range(DRAWN):
        lengths = (max(1, round(mean * draw.uniform(0.5, 1.5))) for mean in (prompt, output))
        made.append(Request(now, *lengths))
        now += draw.expovariate(rate)
    return made


def _read(path: Path) -> list[Request]:
    with reading(f"{path} cannot be read.", _HINT), path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[: _MOST + 1]
    try:
        made = [Request(float(row[COLUMNS[0]]), int(row[COLUMNS[1]]), int(row[COLUMNS[2]])) for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a table of requests.", f"{type(error).__name__}: {error}.", _HINT) from error
    if len(made) > _MOST or any(_impossible(each) for each in made):
        why = f"It has more than {_MOST:,} rows, a time that is negative, or a request without tokens."
        raise InputError(f"{path} cannot be served.", why, _HINT)
    return made


def _impossible(request: Request) -> bool:
    return not 0 <= request.arrival_s < 1e9 or min(request.prompt_tokens, request.output_tokens) < 1
