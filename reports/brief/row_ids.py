"""Stable ids of the rows of an analysis: the same name has the same id in every trace."""

from collections.abc import Iterator

import xxhash

from tracekit.analyzers.results import Analysis

NAMED = {
    "layer": ("layers", "path"),
    "type": ("layer_types", "type"),
    "op": ("ops", "name"),
    "kernel": ("kernels", "name"),
    "phase": ("phases", "name"),
    "cause": ("idle_causes", "cause"),
    "problem": ("problems", "code"),
}
"""Kind of id, with its table of the analysis and the column that names the rows."""
_LONGEST = 60
"""Longer names are replaced by their hash."""


def row_id(kind: str, name: str) -> str:
    """Return "kind:name", or "kind:#" and a hash for a name that is long or not printable."""
    plain = name.isprintable() and len(name) <= _LONGEST
    return f"{kind}:{name}" if plain else f"{kind}:#{xxhash.xxh32_hexdigest(name.encode('utf-8', 'surrogatepass'))}"


def ids(analysis: Analysis) -> Iterator[str]:
    """Yield every id."""
    for kind, (table, column) in NAMED.items():
        yield from (row_id(kind, str(name)) for name in getattr(analysis, table)[column])
    yield from (f"counter:{name}" for name in dict.fromkeys(analysis.counts["counter"]))
    yield from (f"advice:{each.id}" for each in analysis.considered)
    yield from (f"step:{step}" for step in analysis.timeline.steps["step"])
