"""Writes a kernel's file from the tree of its template: constants of a run, the code of its ops, and a docstring.

Names and numbers of a graph are data: they become literals, never code.
"""

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources, util
from pathlib import Path
from types import ModuleType
from typing import Any

from tracekit.analyzers.core import InputError
from tracekit.run import require

_BODY = ("_tanh", "_body", "_gradient", "_gradients", "_unfused")
"""Functions of a template that the code of a run's ops replaces."""


@dataclass(frozen=True)
class Written:
    """A kernel to write: a template, values for its constants, and lines for its docstring."""

    template: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    launches: Iterable[Mapping[str, int]] = ()
    heading: tuple[str, ...] = ()
    body: tuple[ast.FunctionDef, ...] = ()
    """Functions that replace those of the template; (): the template's own stay."""


def placeholders(template: str) -> dict[str, Any]:
    """Return placeholders for the modules that a template's kernel replaces, if they are unknown."""
    names = {"LAYERS": ("<class of the module>",), "GROUPS": (("<first layer>", "<second layer>"),)}
    if template == "padded_projection":
        names["NAMES"] = ("<the layer>",)
    return {name: value for name, value in names.items() if name in _constants(_tree(template))}


def text(written: Written) -> str:
    """Return the source of a kernel's file. Raises InputError for a constant that is not a plain finite value."""
    tree = _tree(written.template)
    constants, changes = _constants(tree), list[tuple[ast.AST, ast.AST, str]]()
    launches = tuple(dict(each) for each in written.launches)
    for name, value in {**written.constants, **({"CONFIGS": launches} if launches else {})}.items():
        changes.append((constants[name], constants[name], _literal(value)))
    if written.body:
        functions = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name in _BODY]
        code = "\n\n\n".join(ast.unparse(ast.fix_missing_locations(each)) for each in written.body)
        changes.append((functions[0].decorator_list[0], functions[-1], code.removeprefix("@")))
    if written.heading:
        docstring = tree.body[0].value  # type: ignore[attr-defined]
        changes.append((docstring, docstring, _docstring(docstring.value, written.heading)))
    return _changed(_source(written.template), changes)


def load(path: Path, name: str = "") -> ModuleType:
    """Import a kernel's file. Raises MissingPackageError if Triton cannot be imported."""
    spec = util.spec_from_file_location(name or path.stem, path)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    require("triton")
    spec.loader.exec_module(module)
    return module


def _source(template: str) -> str:
    return (resources.files("tracekit.fuse.kernels") / f"{template}.py").read_text(encoding="utf-8")


@cache
def _tree(template: str) -> ast.Module:
    return ast.parse(_source(template))


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of a module's constants."""
    assigned = (each for each in tree.body if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name))
    return {each.targets[0].id: each.value for each in assigned}  # type: ignore[attr-defined]


def _changed(source: str, changes: list[tuple[Any, Any, str]]) -> str:
    """Return the source with the code from one node to another replaced, for each change."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    result = b"".join(lines)
    for first, last, code in sorted(changes, key=lambda change: -change[0].lineno):
        begin = starts[first.lineno - 1] + first.col_offset
        end = starts[last.end_lineno - 1] + last.end_col_offset
        result = result[:begin] + code.encode() + result[end:]
    return result.decode()


def _literal(value: Any) -> str:
    """Return a plain value as an expression that evaluates to it and does nothing else."""
    if type(value) is tuple:
        if value and type(value[0]) is dict:
            return "(\n" + "".join(f"    {_literal(each)},\n" for each in value) + ")"
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    if type(value) is dict:
        return f"{{{', '.join(f'{_literal(key)}: {_literal(each)}' for key, each in value.items())}}}"
    if type(value) in (str, bool, int) or (type(value) is float and math.isfinite(value)):
        return ascii(value)
    raise InputError(f"{value!r:.40} cannot be a constant of a kernel.", "It is not a plain finite value.")


def _docstring(before: str, heading: Iterable[str]) -> str:
    """Return a docstring with these lines at its end, in which no character ends it or hides."""
    lines = [*before.rstrip().split("\n"), "", *heading]
    safe = (line.encode("unicode_escape").decode().replace('"', '\\"') for line in lines)
    return '"""' + "\n".join(safe) + '\n"""'
