"""docs/accuracy.md: the last blind round, the targets, then a chapter for each kind of prediction."""

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from accuracy import blind
from accuracy.chapter import Chapter, NothingToCompareError, Target, table

CHAPTERS = {
    "kernels": "Kernel time",
    "collectives": "Collective communication",
    "counters": "Counted FLOPs and bytes",
    "host": "Host and device timelines",
    "published": "Published end-to-end results",
    "rescored": "Blind rounds, seen",
    "speedups": "Speed-up of optimizations on an H200",
    "constants": "Constants of the model",
}
"""Title of each module's chapter while there is nothing to compare."""

_HEAD = """# How accurate predictions are

Written by `python benchmarks/accuracy.py`; do not edit. An error is |predicted ÷ measured − 1|; the error of a class is
the mean over its rows, so that a short kernel counts as much as a long one.
"""


def assemble(shared: Path) -> str:
    """Return the page as Markdown. `shared` is the folder of public measurements, which may be absent."""
    chapters = [_chapter(module, title, shared) for module, title in CHAPTERS.items()]
    targets = [target for chapter in chapters for target in chapter.targets]
    sections = [f"## {chapter.title}\n\n{chapter.text.strip()}\n" for chapter in chapters]
    return "\n".join([_HEAD, blind.section(), *_targets(targets), *sections])


def _chapter(module: str, title: str, shared: Path) -> Chapter:
    if find_spec(f"accuracy.{module}") is None:
        return Chapter(title, "Not compared yet.")
    try:
        written: Chapter = import_module(f"accuracy.{module}").chapter(shared)
    except NothingToCompareError as why:
        return Chapter(title, f"Not compared in this run: {why}")
    return written


def _targets(targets: Iterable[Target]) -> list[str]:
    rows = [(one.claim, one.limit, one.measured, one.verdict) for one in targets]
    return ["## Targets\n", table(["target", "limit", "measured", ""], rows, 0) + "\n"] if rows else []
