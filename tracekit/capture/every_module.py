"""Emits ranges for every module of a user's code, which is named at its first call."""

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from tracekit.capture.annotate import Annotation, Emitter, ModuleRange, has_forward, is_annotated, range_name
from tracekit.capture.called_modules import Called
from tracekit.capture.packages import require

if TYPE_CHECKING:
    from torch import nn


def annotate_every_module(emitter: Emitter, called: Called | None = None) -> Annotation:
    """Hook every module call of the process, and count the modules in `called`. Modules with the ranges of `annotate`
    keep them."""
    modules, spans = require("torch.nn.modules.module"), _Spans(emitter, called or Called())
    return Annotation(
        [
            modules.register_module_forward_pre_hook(spans.before),
            modules.register_module_forward_hook(spans.after, always_call=True),
        ]
    )


class _Spans:
    """The range of each module. A module not seen before is a root and names all modules inside it.

    Paths are relative to the first root. Those inside another root, such as a loss, begin with its class.
    """

    def __init__(self, emitter: Emitter, called: Called) -> None:
        self._emitter, self._called = emitter, called
        self._is_compiling = require("torch.compiler").is_compiling
        self._spans: WeakKeyDictionary[nn.Module, ModuleRange | None] = WeakKeyDictionary()
        self._roots: dict[str, int] = {}

    def before(self, module: "nn.Module", arguments: tuple[Any, ...] = (), *_: Any) -> None:
        if self._is_compiling():
            return
        self._called.see(arguments)
        if module not in self._spans:
            self._add_root(module)
        span = self._spans[module]
        if span:
            span.before()

    def after(self, module: "nn.Module", *_: Any) -> None:
        if self._is_compiling():
            return
        span = self._spans.get(module)
        if span:
            span.after()

    def _add_root(self, root: "nn.Module") -> None:
        self._called.add(root)
        prefix = self._prefix(type(root).__name__)
        for path, module in root.named_modules():
            name = range_name(f"{prefix}.{path}" if prefix else path, module)
            wanted = has_forward(module) and not is_annotated(module)
            self._spans[module] = ModuleRange(name, self._emitter) if wanted else None

    def _prefix(self, type_name: str) -> str:
        if not self._roots:
            self._roots[type_name] = 1
            return ""
        number = self._roots[type_name] = self._roots.get(type_name, 0) + 1
        return type_name if number == 1 else f"{type_name}_{number}"
