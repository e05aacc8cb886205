"""Workers and programs without separate processes, for tests that do not depend on where the work is done."""

import pickle
import runpy
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from tracekit.measure import Worker
from tracekit.measure.worker import _answered


class SameProcess(Worker):
    """Calls functions in this process. Functions, arguments and answers are pickled, as between processes."""

    def start(self) -> None:
        """Do nothing: there is no process."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        there, given = pickle.loads(pickle.dumps((function, arguments)))
        answer = pickle.loads(pickle.dumps(_answered(there, given)))
        return answer.failure or answer.value


def printed(module: str, *arguments: object) -> str:
    """Run a module as a program in this process, and return what it prints. Raises SystemExit if it fails."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as told:
        patch.setattr(sys, "argv", [module, *map(str, arguments)])
        try:
            runpy.run_module(module, run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
    return told.getvalue()
