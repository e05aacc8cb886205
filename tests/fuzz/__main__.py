"""Run tracekit on many mutated inputs, and list those for which an invariant does not hold.

python -m tests.fuzz --count 10000 [--seed 0] [--format graph]
"""

import tempfile
from collections import Counter
from pathlib import Path

import click

from .formats import FORMATS
from .runner import FuzzError, run_one, warm


@click.command()
@click.option("--count", default=10_000, show_default=True)
@click.option("--seed", default=0, show_default=True, help="The first seed; each input has the next one.")
@click.option(
    "--format",
    "names",
    multiple=True,
    type=click.Choice(list(FORMATS)),
    help="Of these formats.  [default: all in turn]",
)
def main(count: int, seed: int, names: tuple[str, ...]) -> None:
    """Mutate COUNT inputs. Exits 1 when an invariant fails for one of them."""
    chosen, ends = list(names or FORMATS), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        warm(chosen, Path(folder))
        for number in range(seed, seed + count):
            name = chosen[number % len(chosen)]
            try:
                ends[run_one(name, number, Path(folder) / "mutated")] += 1
            except FuzzError as error:
                ends["failed"] += 1
                click.echo(f"--format {name} --seed {number} --count 1: {' '.join(str(error).split())}")
            if (number - seed) % 500 == 499:
                click.echo(f"{number - seed + 1:,} done: {dict(ends)}")
    click.echo(f"{count:,} of {', '.join(chosen)}: {dict(ends)}")
    raise SystemExit(bool(ends["failed"]))


if __name__ == "__main__":
    main()
