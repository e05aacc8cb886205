"""A process that measures: what it returns, keeps, and survives."""

import os
import signal
import sys
from operator import floordiv, mul

import pytest

from tracekit.advise import parse
from tracekit.analyzers.core import TracekitError
from tracekit.measure import Worker, checked
from tracekit.measure.worker import Failure

pytestmark = pytest.mark.usefixtures("no_models")


@pytest.fixture(scope="module")
def worker():
    with Worker() as running:
        yield running


def test_it_answers_from_one_other_process(worker):
    assert worker.call(mul, 6, 7) == 42
    first = worker.call(os.getpid)
    assert first != os.getpid()
    assert worker.call(os.getpid) == first


def test_what_is_raised_there_is_told_here(worker):
    answer = worker.call(floordiv, 1, 0)
    assert answer == Failure("ZeroDivisionError: integer division or modulo by zero")
    explained = worker.call(parse, "cuda-graph")
    assert "cuda-graphs" in explained.hint
    with pytest.raises(TracekitError, match="not known"):
        checked(explained)
    assert worker.call(mul, 2, 2) == 4


def test_a_process_that_dies_is_replaced(worker):
    before = worker.call(os.getpid)
    answer = worker.call(os.kill, before, signal.SIGKILL)
    assert isinstance(answer, Failure) and "-9" in answer.what
    assert worker.call(os.getpid) not in (before, os.getpid())


def _shout_and_end(line: str) -> None:
    print("Importing something: a warning", file=sys.stderr)
    os.write(2, f"{line}\n".encode())
    os.abort()


def test_what_it_prints_is_kept_back_until_it_dies(worker, capfd):
    worker.call(print, "a warning of an earlier call")
    answer = worker.call(_shout_and_end, "terminate called: out of memory")
    assert answer.why == "Its last output was: terminate called: out of memory"
    assert "tracekit -v" in answer.hint
    assert capfd.readouterr() == ("", "")
    silent = worker.call(os.abort)
    assert silent == Failure("The measuring process ended with status -6.")


def test_verbose_shows_what_is_printed_there(capfd):
    with Worker(verbose=True) as running:
        running.call(print, "what a library says")
    assert capfd.readouterr().err == "what a library says\n"


def test_what_is_printed_there_does_not_disturb(worker):
    assert worker.call(print, "between two answers") is None
    assert worker.call(mul, 3, 3) == 9
