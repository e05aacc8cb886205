"""Runs a script in this process, and times the calls of its model, with or without changes around them.

Called in a new worker process for each run: scripts leave settings, threads and memory behind.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.apply import ScriptChanges
from tracekit.capture import WARM_UP_STEPS, ModuleTimes, annotate_every_module, clock_of, run_script
from tracekit.measure import device_state
from tracekit.measure.trial import Start, versions
from tracekit.run import environment, first_line, require

if TYPE_CHECKING:
    from torch import nn


FEWEST_CALLS = 5
_NO_GPU = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Command:
    script: Path
    arguments: tuple[str, ...]
    on_cuda: bool


@dataclass(frozen=True)
class Main:
    """The module whose calls are a script's steps."""

    place: int
    """How many other modules the script called before it."""
    name: str
    began: Start


@dataclass(frozen=True)
class StepTimes:
    samples_us: tuple[float, ...]
    """From one call of the model to the next, or of each step that the script marks; without warm-up."""
    peak_memory_bytes: int


def main_module(command: Command) -> Main:
    """Run the script unchanged, and return the module that does most of its work: most weights in most calls.

    Raises InputError if none is called FEWEST_CALLS times, and TracekitError if the script fails.
    """
    seen = _Called()
    with _outermost_calls(seen.count), _marked_blocks(_Steps()):
        _run(command)
    called = [each for each in seen.modules if each.calls >= FEWEST_CALLS]
    if not called:
        most = max((each.calls for each in seen.modules), default=0)
        raise InputError(
            f"{command.script} calls no torch module {FEWEST_CALLS} times.",
            f"A step is timed from one call of the model to the next, after warm-up, and there are {most}.",
            "Let it run more steps, and record it again.",
        )
    chosen = max(called, key=lambda each: each.weights * each.calls)
    device = environment.cuda_state() if command.on_cuda else environment.cpu_state()
    began = Start(device_state.peak_so_far(), device.name, versions(), device_state.reading())
    return Main(seen.modules.index(chosen), chosen.name, began)


def timed(command: Command, main: Main, changes: ScriptChanges) -> StepTimes:
    """Run the script with the changes, and return the times of its steps. Raises TracekitError if it fails."""
    made, steps, seen, watching = changes.make(), _Steps(), _Called(), ExitStack()

    def find(module: "nn.Module") -> None:
        if seen.count(module) == main.place:
            watching.close()
            _change(module, changes, steps)

    watching.enter_context(_outermost_calls(find))
    with watching, _marked_blocks(steps):
        _run(command)
    made.check()
    return StepTimes(steps.samples_us(), device_state.peak_so_far())


def module_shares(command: Command) -> dict[str, float]:
    """Run the script with each module timed between synchronizations of the device, and return the shares of classes.

    Raises TracekitError if it fails.
    """
    times = ModuleTimes()
    with annotate_every_module(times):
        _run(command)
    return times.shares()


def _change(model: "nn.Module", changes: ScriptChanges, steps: "_Steps") -> None:
    """Replace the forward pass of a model; each call begins a step."""
    plain: Any = model.forward
    changed = changes.forward(model, plain)

    @wraps(plain)
    def forward(*args: Any, **named: Any) -> Any:
        steps.begin()
        return changed(*args, **named)

    model.forward = forward


def _run(command: Command) -> None:
    if not command.on_cuda:
        os.environ[_NO_GPU] = ""
    sys.stdin = Path(os.devnull).open()  # noqa: SIM115 (the calls of this process come through the other one)
    ended = run_script(command.script, command.arguments)
    if isinstance(ended, TracekitError):
        raise ended
    if ended:
        why = f"{type(ended).__name__}: {first_line(ended)}" if isinstance(ended, Exception) else repr(ended)
        raise TracekitError(f"{command.script} failed.", why, "Run it again with tracekit -v to see what it prints.")


class _Steps:
    """Instants at which the calls of the model begin, and the steps that the script marks itself."""

    def __init__(self) -> None:
        self._marks: list[Any] = []
        self._marked: list[tuple[Any, Any]] = []

    def begin(self) -> None:
        self._marks.append(self._clock.mark())

    @contextmanager
    def marked(self) -> Iterator[None]:
        first = self._clock.mark()
        yield
        self._marked.append((first, self._clock.mark()))

    def samples_us(self) -> tuple[float, ...]:
        """Return the time of each step after warm-up, in microseconds."""
        clock = self._clock
        clock.synchronize()
        spans = self._marked if len(self._marked) >= FEWEST_CALLS else list(pairwise(self._marks))
        warm = spans[min(WARM_UP_STEPS, len(spans) // 2) :]
        if not warm:
            raise TracekitError("The script called its model less often than before.")
        return tuple(clock.microseconds(first, last) for first, last in warm)

    @property
    def _clock(self) -> Any:
        return clock_of("cuda" if require("torch.cuda").is_initialized() else "cpu")


@dataclass
class _Module:
    name: str
    weights: int
    calls: int = 0


@contextmanager
def _outermost_calls(at_call: Callable[["nn.Module"], object]) -> Iterator[None]:
    """Call `at_call` before each call of a module that the script makes itself, in its main thread."""
    kind, is_compiling = require("torch.nn").Module, require("torch.compiler").is_compiling
    plain, depth = kind.__call__, [0]

    def call(module: "nn.Module", *args: Any, **named: Any) -> Any:
        if is_compiling() or threading.current_thread() is not threading.main_thread():
            return plain(module, *args, **named)
        depth[0] += 1
        try:
            if depth[0] == 1:
                at_call(module)
            return plain(module, *args, **named)
        finally:
            depth[0] -= 1

    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = plain


class _Called:
    """The modules that the script calls itself, in the order of their first call."""

    def __init__(self) -> None:
        self.modules: list[_Module] = []
        self._places: dict[int, tuple[int, Any]] = {}

    def count(self, module: "nn.Module") -> int:
        """Count a call, and return the module's place. It is kept, so that no other gets its id."""
        if id(module) not in self._places:
            self._places[id(module)] = len(self.modules), module
            weights = sum(each.numel() for each in module.parameters())
            self.modules.append(_Module(type(module).__name__, weights))
        place, _ = self._places[id(module)]
        self.modules[place].calls += 1
        return place


@contextmanager
def _marked_blocks(steps: _Steps) -> Iterator[None]:
    """Let `tracekit.capture` in the script time its steps instead of recording a trace."""
    from tracekit.capture import capture_session as sessions
    from tracekit.run import TRACE

    class Timed:
        def __init__(self, folder: Path, *_: Any, **__: Any) -> None:
            self.path = folder / TRACE

        def __enter__(self) -> "Timed":
            return self

        def __exit__(self, *_: object) -> None: ...

        def step(self) -> Any:
            return steps.marked()

    plain, sessions.session = sessions.session, Timed  # type: ignore[assignment]
    try:
        yield
    finally:
        sessions.session = plain
