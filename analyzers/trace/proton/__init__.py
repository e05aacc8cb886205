"""Read profiles of Triton's Proton: trees (`.hatchet`) and timelines (`.chrome_trace`) of kernels in their scopes."""

import re

from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import Trace

FORMAT = "Triton Proton (.hatchet, .chrome_trace)"

_TREE = re.compile(rb'\s*+\[\s*+\{\s*+"(?:children|frame|metrics)"')
_TIMELINE = re.compile(rb'\s*+\{"displayTimeUnit":"us","traceEvents":\[\{"args":\{"call_stack"')


def sniff(head: bytes) -> bool:
    return bool(_TREE.match(head) or _TIMELINE.match(head))


def read(source: Source) -> Trace:
    """Read a profile. Raises InputError if it contains no kernel."""
    from tracekit.analyzers.trace.proton import reader

    return reader.read(source, is_tree=bool(_TREE.match(source.head)))
