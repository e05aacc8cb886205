"""Names the program that a trace was recorded of: a script, or a binary."""

import re

from tracekit.analyzers.trace.trace import Trace

_SCRIPT = re.compile(r"(?:.*[/\\])?(?P<file>[^/\\]+\.py)\(\d+\): <module>")
_LAUNCHERS = re.compile(r"(?:\w+_launcher|runpy|__main__)\.py")
"""Scripts that only run another one."""
_PROCESS = re.compile(r"\((?P<name>[^()]+)\)$")
_INTERPRETERS = re.compile(r"(?:i?python[\d.]*|pt_\w+|cuda(?:\d\w*|-EvtHandlr)|MPI Rank \d+)", re.IGNORECASE)
"""Names of threads that every program in Python, torch or MPI has."""


def program_of(trace: Trace) -> str:
    """Return the script whose module-level code ran longest, else the process of most host rows; "" if neither is
    named.

    Modules that a script imports run inside it, so that its own code takes longest. A process counts only if it is not
    an interpreter.
    """
    return _script(trace) or _process(trace)


def _script(trace: Trace) -> str:
    calls = trace.host[(trace.host["category"] == "python").to_numpy()]
    longest = calls.groupby(calls["name"].astype(str))["duration_ns"].max().sort_values(ascending=False)
    files = (match["file"] for name in longest.index if (match := _SCRIPT.fullmatch(name)))
    return next((file for file in files if not _LAUNCHERS.fullmatch(file)), "")


def _process(trace: Trace) -> str:
    threads = trace.host["thread"].value_counts()
    names = [match["name"] for at in threads.index if (match := _PROCESS.search(trace.metadata.threads[at]))]
    return names[0] if names and not _INTERPRETERS.fullmatch(names[0]) else ""
