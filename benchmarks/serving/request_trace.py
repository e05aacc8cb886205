"""Requests of a serving run: when each arrives, how long its prompt is, and how many tokens it asks for."""

import csv
import random
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Request:
    arrival_s: float
    prompt_tokens: int
    output_tokens: int


def poisson(rate: float, count: int, prompt: int, output: int, seed: int = 0) -> list[Request]:
    """Return requests with exponential times between arrivals, and lengths uniform within half of their means."""
    draw, now, made = random.Random(seed), 0.0, list[Request]()
    for _ in range(count):
        made.append(Request(now, *(draw.randint(mean // 2, mean + mean // 2) for mean in (prompt, output))))
        now += draw.expovariate(rate)
    return made


def write(requests: list[Request], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["arrival_s", "prompt_tokens", "output_tokens"])
        writer.writerows([f"{each.arrival_s:.6f}", each.prompt_tokens, each.output_tokens] for each in requests)
