"""A separate process for measurements, so that a crash or a CUDA error in one does not affect the next."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tracekit.analyzers.core import TracekitError, progressed, watching
from tracekit.run import require

_GRACE_S = 10
"""Seconds until a process that does not end is terminated."""
_WATCH_S = 0.5
_ENDED = "The measuring process ended with status {status}."
_VERBOSE = "Run it again with tracekit -v to see its whole output."


@dataclass(frozen=True)
class Failure:
    """An error that a call raised: the parts of a TracekitError, or one line of any other exception."""

    what: str
    why: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.why, self.hint) if part)


@dataclass(frozen=True)
class _Progress:
    """How much of some work is done, sent before the answer."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class _Answer:
    value: Any
    failure: Failure | None
    usable: bool
    """Whether the device still works. After an assertion on the device, every further call in the process fails."""


class Worker:
    """Calls functions in another process, one after another. State of their modules is kept between calls.

    A process whose device stopped working is replaced before the next call. The output of libraries (warnings on
    import, progress of tuning) is shown if `verbose`; otherwise only its last line, if the process ends early.
    Who watches the calling process sees the progress of the functions, too.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._printed = None if verbose else tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (until closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._process is not None:
            self._process.terminate()  # The result of its current call is not needed.
        self.close()
        if self._printed:
            self._printed.close()

    def start(self) -> None:
        """Start the process, which loads its libraries before the first call."""
        self._running()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the function's result, or a Failure if it raised or the process ended."""
        process, printed = self._running(), self._printed_bytes()
        try:
            _send(process.stdin, (function, arguments))
            answer = self._answer(process)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self.close()
            return Failure(_ENDED.format(status=process.returncode), *self._last_line(printed))
        if not answer.usable:
            self.close()
        return answer.failure or answer.value

    def _answer(self, process: "subprocess.Popen[bytes]") -> _Answer:
        while isinstance(message := pickle.load(process.stdout), _Progress):  # type: ignore[arg-type]
            progressed(message.what, message.done, message.total)
        answer: _Answer = message
        return answer

    def close(self) -> None:
        """End the process, which frees its device memory."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            command = [sys.executable, "-m", "tracekit.measure.worker"]
            path = os.pathsep.join(filter(None, sys.path))
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._printed,
                env={**os.environ, "PYTHONPATH": path},
            )
        return self._process

    def _printed_bytes(self) -> int:
        return self._printed.seek(0, os.SEEK_END) if self._printed else 0

    def _last_line(self, start: int) -> tuple[str, str]:
        """Return the last line of output after the offset `start`, and how to see the other lines."""
        if not self._printed:
            return "", ""
        self._printed.seek(start)
        lines = [line.strip() for line in self._printed.read().decode(errors="replace").splitlines()]
        last = next(filter(None, reversed(lines)), "")
        return (f"Its last output was: {last}", _VERBOSE) if last else ("", "")


def checked(answer: Any) -> Any:
    """Return the result of a call. Raises TracekitError for a Failure."""
    if isinstance(answer, Failure):
        raise TracekitError(answer.what, answer.why, answer.hint)
    return answer


def _send(stream: Any, message: Any) -> None:
    pickle.dump(message, stream)
    stream.flush()


def failure_of(error: Exception) -> Failure:
    if isinstance(error, TracekitError):
        return Failure(error.what, error.why, error.hint)
    lines = str(error).strip().splitlines()
    return Failure(f"{type(error).__name__}: {lines[0] if lines else 'no message'}")


def device_works() -> bool:
    """Return False once a kernel has failed, after which the process cannot use the device any more."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return True
    try:
        require("torch.cuda").synchronize()
    except RuntimeError:
        return False
    return True


def _answered(function: Callable[..., Any], arguments: tuple[Any, ...]) -> _Answer:
    try:
        return _Answer(function(*arguments), None, device_works())
    except Exception as error:
        return _Answer(None, failure_of(error), device_works())


def _serve() -> None:
    """Answer calls until the input ends. Libraries may print to stdout, so it is redirected to stderr."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(Exception):  # a call that needs them says why they cannot be loaded
        require("transformers.modeling_utils")
    while True:
        try:
            function, arguments = pickle.load(calls)
        except EOFError:
            return
        with watching(lambda *progress: _send(answers, _Progress(*progress))):
            answer = _answered(function, arguments)
        _send(answers, answer)


def _end_with_parent(parent: int) -> None:
    """End this process after its parent has ended: with SIGTERM, and after _GRACE_S seconds at once."""
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    from tracekit.measure import worker  # Pickled classes must belong to the module, not to __main__.

    worker._serve()
