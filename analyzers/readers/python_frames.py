"""Selects calls of Python functions in profiles with stacks: modules, and frames that are long enough to explain a
gap."""

import re

from tracekit.analyzers.readers.categories import PYTHON_FRAME
from tracekit.analyzers.readers.events import Event

MODULE_PREFIX = "nn.Module: "
SHORTEST_FRAME_US = 100.0
"""Shortest call that is kept. Shorter ones are most of the events of such a trace, and cannot explain a long gap."""
_GARBAGE_COLLECTION = "Python GC"
_GRAPHS = "cudagraph_trees.py"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def modules_and_frames(calls: list[Event]) -> list[Event]:
    """Return the module calls, and the other long calls; the latter get the category PYTHON_FRAME."""
    modules = [call for call in calls if call.name.startswith(MODULE_PREFIX)]
    frames = [call for call in calls if _lasts(call) and not call.name.startswith(MODULE_PREFIX)]
    for frame in frames:
        frame.cat, frame.name = PYTHON_FRAME, _ADDRESS.sub("", frame.name)
    return modules + frames


def _lasts(call: Event) -> bool:
    return call.name == _GARBAGE_COLLECTION or _GRAPHS in call.name or (call.dur or 0.0) >= SHORTEST_FRAME_US
