"""Makes a large trace from a real one by repeating its events, later and with other ids, so that copies do not collide.

python -m benchmarks performance.replicate /tmp/big.json --megabytes 500 [--source trace.json.gz]
"""

import gzip
import json
import re
from pathlib import Path
from typing import IO, NamedTuple

import click
import numpy as np

SAMPLE = Path(__file__).parents[2] / "examples/traces/h200_gpt2_train.json.gz"

_EVENTS_KEY = re.compile(r'"traceEvents"\s*:\s*')
_SHIFTED = re.compile(
    r'(?<=")(?P<key>ts|correlation|External id|External Id|external id|id|Sequence number|Python id|Python parent id)'
    r'"\s*:\s*"?(?P<number>\d+)'
)


class Copies(NamedTuple):
    """`template % numbers` is the text of the events; copy n has n times the shifts added to its numbers."""

    template: str
    numbers: np.ndarray
    shifts: np.ndarray

    def text(self, copy: int) -> str:
        return self.template % tuple((self.numbers + copy * self.shifts).tolist())


def replicate(source: Path, target: Path, megabytes: float) -> int:
    """Writes about that many (decimal, uncompressed) megabytes; returns the number of events."""
    text = _read(source)
    key = _EVENTS_KEY.search(text)
    if key is None:
        raise click.ClickException(f"{source} has no traceEvents.")
    events, end = json.JSONDecoder().raw_decode(text, key.end())
    copies = _copies(text[key.end() + 1 : end - 1].rstrip(), events)
    count = max(round((megabytes * 1e6 - len(text)) / len(copies.text(0))) + 1, 1)
    with _open(target) as file:
        file.write(text[: key.end() + 1])
        for copy in range(count):
            file.write((",\n" if copy else "") + copies.text(copy))
        file.write(text[end - 1 :])
    return count * len(events)


def _copies(text: str, events: list[dict]) -> Copies:
    matches = list(_SHIFTED.finditer(text))
    keys = np.array([match["key"] for match in matches])
    numbers = np.array([int(match["number"]) for match in matches], dtype=np.int64)
    shifts = np.zeros_like(numbers)
    ids = keys != "ts"
    shifts[ids] = numbers[ids].max(initial=0) + 1
    shifts[~ids] = _span_us(events)
    pieces, at = [], 0
    for match in matches:
        pieces += [text[at : match.start("number")].replace("%", "%%"), "%d"]
        at = match.end()
    return Copies("".join(pieces) + text[at:].replace("%", "%%"), numbers, shifts)


def _span_us(events: list[dict]) -> int:
    """Whole microseconds, so that the digits after the point stay as they are."""
    timed = [event for event in events if event.get("ph") == "X" and "ts" in event]
    start = min(event["ts"] for event in timed)
    return int(max(event["ts"] + event.get("dur", 0) for event in timed) - start) + 10


def _read(source: Path) -> str:
    raw = source.read_bytes()
    return (gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw).decode()


def _open(target: Path) -> IO[str]:
    return gzip.open(target, "wt", compresslevel=6) if target.suffix == ".gz" else target.open("w")


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--megabytes", default=500.0, show_default=True)
@click.option("--source", type=click.Path(path_type=Path, exists=True), default=SAMPLE, show_default=True)
def main(target: Path, megabytes: float, source: Path) -> None:
    """Write a big trace to TARGET (gzipped when it ends in .gz)."""
    events = replicate(source, target, megabytes)
    click.echo(f"{target}: {target.stat().st_size / 1e6:.0f} MB, {events:,} events")


if __name__ == "__main__":
    main()
