"""What bounds the run, with what is unknown told apart."""

from analyzers.results import BOUNDS, Analysis


def bound_shares(analysis: Analysis) -> list[tuple[str, float]]:
    """Bounds with their share of the step, largest first; "" is work whose bound is unknown.

    The analysis counts unknown work as memory: here it stands by itself, as large as its part of the busy time. A
    trace of a CPU has no bounds.
    """
    if analysis.source.device == "cpu":
        return []
    shares: dict[str, float] = {name: getattr(analysis.bound, name) for name in BOUNDS}
    unknown = min(shares["memory"], _unplaced(analysis) * (1 - shares["launch"]))
    shares["memory"] -= unknown
    shown = [*shares.items(), *([("", unknown)] if unknown > 0 else [])]
    return sorted(shown, key=lambda pair: -pair[1])


def _unplaced(analysis: Analysis) -> float:
    """Part of the busy time under no roof and of no bound of its own."""
    work = analysis.work
    unplaced = work["bound"].isin(["", "launch"]) & work["roof_fraction"].isna()
    return float(work.loc[unplaced, "busy_ns"].sum()) / max(1, int(work["busy_ns"].sum()))
