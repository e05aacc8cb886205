"""The fingerprint of a run: the entries that must be equal for times to be comparable."""

from collections.abc import Collection, Mapping

from tracekit.analyzers.results import Analysis

Fingerprint = dict[str, str | int]

_CLOCKS = ("sm_clock_mhz", "memory_clock_mhz")
_CLOCK_DRIFT = 0.03
"""Clocks count as equal within this fraction."""
_SETTINGS = ("model", "workload", "batch_size", "seq_len", "new_tokens", "dtype", "attention", "weights")
_VERSIONS = ("torch", "transformers", "cuda")
WORK = ("model", "workload", "batch_size", "seq_len", "new_tokens", "weights")
"""Entries on which counters depend too."""
ENTRIES = ("kind", "device", "gpu", "driver", *_CLOCKS, *_SETTINGS, *_VERSIONS, "tracekit", "host_op_us")
"""Every entry that a fingerprint may have."""


def fingerprint(analysis: Analysis) -> Fingerprint:
    """Return what the trace records about the device, the software and the settings of a run."""
    source, capture = analysis.source, analysis.source.capture
    known: Fingerprint = {
        "kind": source.kind,
        "device": source.device_name,
        "gpu": source.gpu.id if source.gpu else "",
        "dtype": source.precision,
    }
    if capture is None:
        return {name: value for name, value in known.items() if value}
    known |= {name: getattr(capture, name) for name in (*_SETTINGS, "driver", *_CLOCKS)}
    known |= {name: capture.versions.get(name, "").partition("+")[0] for name in _VERSIONS}
    if source.kind == "modelled":
        known |= {"tracekit": capture.version, "host_op_us": f"{capture.host_op_us:.3g}"}
        known.pop("device")
    return {name: value for name, value in known.items() if value}


def unlike(
    before: Mapping[str, str | int], after: Mapping[str, str | int], accepted: Collection[str]
) -> dict[str, str]:
    """Return the entries in which two fingerprints differ, each as "A and B".

    An entry that only one of them has does not count as a difference.
    """
    both = [name for name in before if name in after and name not in accepted]
    return {name: f"{before[name]} and {after[name]}" for name in both if not _alike(name, before[name], after[name])}


def unknown(before: Mapping[str, str | int], after: Mapping[str, str | int]) -> list[str]:
    """Return the entries that only one of two fingerprints has."""
    return sorted(before.keys() ^ after.keys())


def _alike(name: str, before: str | int, after: str | int) -> bool:
    if name in _CLOCKS and isinstance(before, int) and isinstance(after, int):
        return abs(after - before) <= _CLOCK_DRIFT * before
    return before == after
