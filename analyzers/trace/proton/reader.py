"""Read a profile of Proton as a trace."""

import numpy as np
import pandas as pd

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import problems
from tracekit.analyzers.trace.problems import problem
from tracekit.analyzers.trace.proton.profiles import timeline, tree
from tracekit.analyzers.trace.proton.scopes import Profile, host_table
from tracekit.analyzers.trace.source import Source
from tracekit.analyzers.trace.trace import DEVICE, Metadata, Trace


def read(source: Source, *, is_tree: bool) -> Trace:
    """Read a profile. Raises InputError if it contains no kernel."""
    profile, replaced = source.decoded(lambda data: _profile(data, is_tree))
    damage = source.damage or profile.damage
    if not profile.launches:
        raise InputError(
            f"{source.name} contains no kernel that Proton recorded.",
            _why_empty(damage, profile.unreadable),
            "Launch kernels between proton.start() and proton.finalize().",
        )
    host, threads = host_table(profile.launches)
    rows = [
        problem("truncated", int(bool(damage)), damage),
        problem("skipped-events", profile.unreadable),
        problem("bad-utf8", replaced),
        problem("no-host-timeline", 0 if is_tree else len(profile.launches)),
        problem("summed-launches", len(profile.launches) if is_tree else 0),
        problem("no-shapes", 1),
    ]
    metadata = Metadata(format="proton", devices=profile.devices, threads=threads)
    return Trace(metadata, host, _device(profile), problems.table(rows))


def _profile(data: bytes, is_tree: bool) -> tuple[Profile, int]:
    """Return the profile, and the number of characters that are not UTF-8."""
    text = data.decode("utf-8", "replace")
    return (tree if is_tree else timeline)(text.encode()), text.count("\ufffd")


def _why_empty(damage: str, unreadable: int) -> str:
    if damage:
        return f"It ends early: {damage}."
    if unreadable:
        return f"The times or counts of {unreadable:,} of its entries are not such numbers."
    return "None of its scopes launched a kernel."


def _device(profile: Profile) -> pd.DataFrame:
    launches = profile.launches
    return DEVICE.partial(
        {
            "start_ns": [each.start_ns for each in launches],
            "duration_ns": [each.duration_ns for each in launches],
            "device": [max(each.device, 0) for each in launches],
            "stream": [each.stream for each in launches],
            "category": ["kernel"] * len(launches),
            "name": [each.name for each in launches],
            "external_id": np.arange(len(launches)),
        }
    )
