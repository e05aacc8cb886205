"""Runs an unmodified Python script under the profiler."""

import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from tracekit.capture.modelled_session import ModelledCapture
from tracekit.capture.session import Capture


def profile_script(script: Path, args: Sequence[str], capture: Capture | ModelledCapture) -> BaseException | None:
    """Run the script as __main__ inside the capture.

    Returns the exception that ended the script (SystemExit only with a failure status), or None.
    """
    capture.__enter__()
    ended = run_script(script, args)
    capture.__exit__(type(ended) if ended else None, ended, None)
    return ended


def run_script(script: Path, args: Sequence[str]) -> BaseException | None:
    """Run the script as __main__, and return the exception that ended it, as `profile_script` does."""
    try:
        with _as_main(script, args):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        return error if error.code not in (None, 0) else None
    except BaseException as error:
        return error.with_traceback(_in_script(error.__traceback__, script))
    return None


def _in_script(trace: TracebackType | None, script: Path) -> TracebackType | None:
    """Return the traceback from the script's own frame on; the whole one if it has no such frame, as for a syntax
    error."""
    inner = trace
    while inner and inner.tb_frame.f_code.co_filename != str(script):
        inner = inner.tb_next
    return inner or trace


@contextmanager
def _as_main(script: Path, args: Sequence[str]) -> Iterator[None]:
    """Set sys.argv and sys.path as Python does for a script."""
    argv, path = sys.argv, sys.path
    sys.argv, sys.path = [str(script), *args], [str(script.resolve().parent), *sys.path[1:]]
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path
