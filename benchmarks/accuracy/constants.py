"""Chapter: the number of constants in the model that are neither from a data sheet nor a definition."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accuracy.chapter import Chapter, table

_ROOT = Path(__file__).parents[2]
_TABLES = {
    "analyzers/kernel_time/constants.toml": "kernel time",
    "analyzers/hardware/calibration.toml": "what each GPU sustains, and its host",
    "analyzers/prediction/host_costs.toml": "host time of an op by its class",
    "analyzers/prediction/intervals.toml": "widths of intervals",
}
_MODULES = {
    "analyzers/kernel_time": "kernel time, in code",
    "analyzers/costs": "FLOPs and bytes of ops",
    "analyzers/prediction": "the baseline and its simulation",
    "analyzers/transforms": "what optimizations change",
    "tracekit/optimizations": "optimizations",
}
_ABOUT = ("rows", "error", "inside", "span", "basis", "fitted", "source", "when")
"""Keys that document a fit, from which nothing is computed; keys that begin with left_out do so, too."""


def chapter(_: Path) -> Chapter:
    rows = [(what, f"`{path}`", *_counted(_of_table(_ROOT / path))) for path, what in _TABLES.items()]
    rows += [(what, f"`{path}`", *_counted(_of_modules(_ROOT / path))) for path, what in _MODULES.items()]
    total = ("all", "", str(sum(int(row[2]) for row in rows)), str(sum(int(row[3]) for row in rows)))
    text = (
        "Numbers in tables and named constants in code, limits and tolerances included, so more than were fitted; 0, 1 "
        "and 2 are not counted. *With an interval*: a low, an expected and a high value, counted once.\n\n"
        + table(["what", "where", "numbers", "with an interval"], [*rows, total], 2)
    )
    return Chapter("Constants of the model", text)


def _counted(numbers: list[bool]) -> tuple[str, str]:
    return str(len(numbers)), str(sum(numbers))


def _of_table(path: Path) -> list[bool]:
    return list(_numbers(tomllib.loads(path.read_text(encoding="utf-8"))))


def _numbers(value: Any) -> Iterator[bool]:
    """Return whether each number is an interval."""
    if isinstance(value, dict):
        kept = [held for key, held in value.items() if key not in _ABOUT and not key.startswith("left_out")]
        yield from (number for held in kept for number in _numbers(held))
    elif isinstance(value, list) and len(value) == 3:
        yield True
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield False


def _of_modules(folder: Path) -> list[bool]:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.py")))
    return [number for tree in trees for value in _constants(tree) for number in _in_code(value)]


def _constants(tree: ast.Module) -> Iterator[ast.expr]:
    """Return the values of the module's named constants."""
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                yield value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name.isupper():
                yield value


def _in_code(value: ast.AST) -> Iterator[bool]:
    match value:
        case ast.Call(func=ast.Name(id="Interval")):
            yield True
        case ast.Constant(value=int() | float() as number) if number not in (0, 1, 2):
            yield False
        case _:
            yield from (number for child in ast.iter_child_nodes(value) for number in _in_code(child))
