"""Writes a kernel's file: its template with the constants of a run, and the launch configurations for its GPU."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources, util
from pathlib import Path
from types import ModuleType
from typing import Any

from tracekit.capture.packages import require

_BODY = re.compile(r"(?<=# body: written from the ops of the run\n).*?(?=\n+# end of the body)", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """A kernel to write: a template, values for its constants, and lines for its docstring."""

    template: str
    constants: Mapping[str, Any] = field(default_factory=dict)
    launches: Iterable[Mapping[str, int]] = ()
    heading: tuple[str, ...] = ()
    body: str = ""
    """Functions that replace the template's code; "": the template's code stays."""


def placeholders(template: str) -> dict[str, Any]:
    """Return placeholders for the modules that a template's kernel replaces, if they are unknown."""
    names = {"LAYERS": ("<class of the module>",), "GROUPS": (("<first layer>", "<second layer>"),)}
    if template == "padded_projection":
        names["NAMES"] = ("<the layer>",)
    source = _source(template)
    return {name: value for name, value in names.items() if re.search(rf"^{name} = ", source, re.MULTILINE)}


def _source(template: str) -> str:
    return (resources.files("tracekit.fusion.kernels") / f"{template}.py").read_text(encoding="utf-8")


def text(written: Written) -> str:
    """Return the source of a kernel's file."""
    source = _source(written.template)
    for name, value in written.constants.items():
        source = _with_constant(source, name, _literal(value))
    launches = tuple(dict(each) for each in written.launches)
    if launches:
        rows = "".join(f"    {launch!r},\n" for launch in launches).replace("'", '"')
        source = _with_constant(source, "CONFIGS", f"(\n{rows})")
    if written.body:
        source = _BODY.sub(lambda _: written.body.rstrip(), source, count=1)
    return _with_heading(source, written.heading)


def load(path: Path, name: str = "") -> ModuleType:
    """Import a kernel's file. Raises MissingPackageError if Triton cannot be imported."""
    spec = util.spec_from_file_location(name or path.stem, path)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    require("triton")
    spec.loader.exec_module(module)
    return module


def _with_constant(source: str, name: str, value: str) -> str:
    """Set a constant of the module, whose value may span several lines."""
    pattern = re.compile(rf"^{name} = (?:\(\n.*?^\)|.*?)$", re.DOTALL | re.MULTILINE)
    changed, count = pattern.subn(lambda _: f"{name} = {value}", source, count=1)
    if not count:
        raise ValueError(f"The template has no constant {name}.")
    return changed


def _literal(value: Any) -> str:
    return re.sub(r"'([^'\"\\]*)'", r'"\1"', repr(value))


def _with_heading(source: str, lines: tuple[str, ...]) -> str:
    """Add lines to the end of the module's docstring."""
    if not lines:
        return source
    end = source.index('"""', 3)
    body = source[:end].rstrip()
    safe = (line.replace("\\", "/").replace('"""', "'''") for line in lines)
    return "\n".join([body, "", *safe]) + "\n" + source[end:]
