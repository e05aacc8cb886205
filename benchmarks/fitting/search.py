"""Minimizes over positive numbers by pattern search, without gradients or randomness, so that fits are reproducible."""

from collections.abc import Callable, Mapping

Constants = dict[str, float]
_STEPS = (1.6, 1.25, 1.1, 1.04, 1.015)


def fitted(loss: Callable[[Constants], float], start: Mapping[str, float], sweeps: int = 8) -> Constants:
    """Return the constants near `start` with the least loss, rounded to three digits."""
    best = dict(start)
    least = loss(best)
    for step in _STEPS:
        for _ in range(sweeps):
            candidate, least_now = _sweep(loss, best, least, step)
            if candidate == best:
                break
            best, least = candidate, least_now
    return {name: float(f"{value:.3g}") for name, value in best.items()}


def _sweep(loss: Callable[[Constants], float], best: Constants, least: float, step: float) -> tuple[Constants, float]:
    for name in best:
        for factor in (step, 1 / step):
            tried = {**best, name: best[name] * factor}
            now = loss(tried)
            if now < least * (1 - 1e-6):
                best, least = tried, now
                break
    return best, least
