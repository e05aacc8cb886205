"""Chapter: the number of constants in the model that are neither from a data sheet nor a definition."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from accuracy.chapter import Chapter, table

_ROOT = Path(__file__).parents[2]
_TABLES = {
    "analyzers/cost/time/constants.toml": "kernel time",
    "analyzers/cost/hardware/calibration.toml": "what each GPU sustains, and its host",
    "analyzers/predict/host_costs.toml": "host time of an op by its class",
    "analyzers/predict/intervals.toml": "widths of intervals",
}
_MODULES = {
    "analyzers/kernel_time": "kernel time, in code",
    "analyzers/costs": "FLOPs and bytes of ops",
    "analyzers/prediction": "the baseline and its simulation",
    "analyzers/transforms": "what optimizations change",
    "tracekit/optimizations": "optimizations",
}
_INTRODUCTION = """Counted are numbers in tables and named constants in code (other than 0, 1 and 2), but not numbers in
formulas. *Defined*: those of the files below, which come from a definition or a library's sources. *Fitted or assumed*:
all others, including limits and tolerances of decisions. *With an interval*: a low, an expected and a high value,
counted once."""
_DEFINED = {
    "analyzers/cost/ops/attention.py": "positions of arguments",
    "analyzers/cost/ops/call.py": "bytes of types",
    "analyzers/cost/ops/convolution.py": "positions of arguments",
    "analyzers/cost/ops/tensors.py": "bytes and numbers of types",
    "analyzers/cost/ops/norm.py": "FLOPs of formulas",
    "analyzers/cost/ops/training.py": "FLOPs of formulas",
    "analyzers/cost/ops/pointwise.py": "FLOPs of formulas",
    "analyzers/cost/ops/fused_layers.py": "gates of a cell",
    "analyzers/cost/ops/serving_layers.py": "FLOPs of formulas",
    "analyzers/cost/ops/reduction.py": "FLOPs of formulas",
    "analyzers/cost/time/attention.py": "tiles in the kernels' sources",
    "analyzers/cost/time/kernel_kinds.py": "limits in PyTorch's sources",
    "analyzers/predict/batch_size.py": "dims of arguments",
    "analyzers/predict/training_memory.py": "tensors that PyTorch's backward formulas keep",
    "analyzers/predict/memory.py": "bytes that PyTorch reserves for cuBLAS",
}
"""Files whose named constants are read off a definition or a library's sources, and which of these."""
_BEFORE = "8549e3d", 757, 609
"""A commit, and its numbers by the same counts: all, and those that are not defined."""
_ABOUT = ("rows", "error", "inside", "span", "basis", "fitted", "source", "when")
"""Keys that document a fit, from which nothing is computed; keys that begin with left_out do so, too."""


def chapter(_: Path) -> Chapter:
    rows = counts(_ROOT)
    total = ("all", "", *(sum(row[column] for row in rows) for column in (2, 3, 4, 5)))
    commit, before, assumed = _BEFORE
    head = ["what", "where", "numbers", "defined", "fitted or assumed", "with an interval"]
    text = (
        f"{_INTRODUCTION}\n\n{table(head, [*rows, total], 4)}\n\nBy the same counts, commit {commit} had {before} "
        f"numbers, {assumed} of them fitted or assumed.\n\nDefined:\n\n"
        + table(["file", "what its named constants are"], [(f"`{path}`", what) for path, what in _DEFINED.items()], 0)
    )
    return Chapter("Constants of the model", text)


def counts(root: Path) -> list[tuple[str, str, int, int, int, int]]:
    """Return, for each table and folder below `root`: what it is, where, and how many numbers it has, of these defined,
    fitted or assumed, and with an interval."""
    tables = {path: what for path, what in _TABLES.items() if (root / path).exists()}
    found = [(what, path, _of_table(root / path), 0) for path, what in tables.items()]
    found += [(what, path, _of_modules(root / path), _defined(root, path)) for path, what in _MODULES.items()]
    return [
        (what, f"`{path}`", len(numbers), defined, len(numbers) - defined, sum(numbers))
        for what, path, numbers, defined in found
    ]


def _defined(root: Path, folder: str) -> int:
    files = [path for path in _DEFINED if path.startswith(f"{folder}/")]
    return sum(len(_of_modules(root / path)) for path in files)


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


def _of_modules(path: Path) -> list[bool]:
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files if file.exists())
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
