"""A worker without a separate process, for tests that do not depend on where the work is done."""

import pickle
from collections.abc import Callable
from typing import Any

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
