"""Read many mutated traces, and list the seeds of those that fail.

python -m tests.fuzz --count 10000 [--seed 0] [--kind perfetto]
"""

import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import click

from .check import BASES, run_one


@click.command()
@click.option("--count", default=10_000, show_default=True)
@click.option("--seed", default=0, show_default=True, help="The first seed; each file has the next one.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(list(BASES)), help="Of these formats.  [default: all]"
)
def main(count: int, seed: int, kinds: tuple[str, ...]) -> None:
    """Read COUNT mutated traces. Exits 1 when one of them fails."""
    ends: Counter[str] = Counter()
    slowest = 0.0, -1
    with tempfile.TemporaryDirectory() as folder:
        for number in range(seed, seed + count):
            start = time.process_time()
            try:
                ends[run_one(number, Path(folder), kinds or tuple(BASES))] += 1
            except Exception as error:
                ends["failed"] += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                click.echo(f"seed {number}: {type(error).__name__}: {str(error)[:300]} ({where.name}:{where.lineno})")
            slowest = max(slowest, (time.process_time() - start, number))
            if (number - seed) % 500 == 499:
                click.echo(f"{number - seed + 1:,} done: {dict(ends)}")
    click.echo(f"{dict(ends)}; slowest: seed {slowest[1]}, {slowest[0]:.1f} s of CPU")
    raise SystemExit(bool(ends["failed"]))


if __name__ == "__main__":
    main()
