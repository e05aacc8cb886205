"""A process that measures, apart from the one that asks: what fails in it, or poisons its device, ends with it."""

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.packages import require

_ENDED = "The process that measured it ended with status {status}."
_VERBOSE = "Run it again with tracekit -v to see all that it printed."


@dataclass(frozen=True)
class Failure:
    """What a call raised: as TracekitError tells it, or one line of what a package or a device said."""

    what: str
    why: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.why, self.hint) if part)


@dataclass(frozen=True)
class _Answer:
    value: Any
    failure: Failure | None
    usable: bool
    """Whether the device still works: after an assertion on it, all that follows in the process fails."""


class Worker:
    """Calls functions of modules in another process, one after another; what they keep there, the next one finds.

    A process whose device stopped working is replaced before the next call. What libraries print there (warnings when
    they are imported, progress of tuning) is shown if `verbose`; else only the last line, when the process ends early.
    """

    def __init__(self, *, verbose: bool = False) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._printed = None if verbose else tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (until closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._printed:
            self._printed.close()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns; a Failure when it raised, or the process ended."""
        process, printed = self._running(), self._printed_bytes()
        try:
            _send(process.stdin, (function, arguments))
            answer: _Answer = pickle.load(process.stdout)  # type: ignore[arg-type]
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            self.close()
            return Failure(_ENDED.format(status=process.returncode), *self._last_words(printed))
        if not answer.usable:
            self.close()
        return answer.failure or answer.value

    def close(self) -> None:
        """End the process, and free what it holds of the device."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            command = [sys.executable, "-m", "tracekit.measurement.worker"]
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

    def _last_words(self, start: int) -> tuple[str, str]:
        """The last line that was printed from `start` on, and how to see the others."""
        if not self._printed:
            return "", ""
        self._printed.seek(start)
        lines = [line.strip() for line in self._printed.read().decode(errors="replace").splitlines()]
        last = next(filter(None, reversed(lines)), "")
        return (f"It printed last: {last}", _VERBOSE) if last else ("", "")


def checked(answer: Any) -> Any:
    """What a call returned. Raises TracekitError for a Failure."""
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
    """False once a kernel has failed: the process cannot use the device any more."""
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
    """Answer calls until there are none. Libraries print to stdout: that is made stderr."""
    questions, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            function, arguments = pickle.load(questions)
        except EOFError:
            return
        _send(answers, _answered(function, arguments))


if __name__ == "__main__":
    from tracekit.measurement import worker  # pickled classes are of the module, not of __main__

    worker._serve()
