"""Step curves: sums, quotients and means of quantities that are constant over intervals."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_POINTS = 20_000


@dataclass(frozen=True)
class Curve:
    """A step curve: `value` holds from its `time_ns` until the next.

    `bin_ns` is the length of the bins that values are means over; 0 if they are exact.
    """

    time_ns: Ints
    value: Floats
    bin_ns: int = 0


def stacked(start: Ints, end: Ints, rate: Floats) -> Curve:
    """Return, at each time, the sum of the rates of all intervals that contain it. Times are in ns."""
    time = np.concatenate([start, end])
    order = np.argsort(time, kind="stable")
    opened = np.cumsum(np.concatenate([np.ones(len(start)), -np.ones(len(end))])[order])
    value = np.where(opened > 0, np.cumsum(np.concatenate([rate, -rate])[order]), 0.0)
    last = np.append(np.diff(time[order]) > 0, True) if len(time) else np.zeros(0, dtype=bool)
    return _changes(Curve(time[order][last], value[last]))


def divided(of: Curve, by: Curve) -> Curve:
    """Return the quotient of two curves; 0 where `by` is 0."""
    time = np.union1d(of.time_ns, by.time_ns)
    over, under = _at(of, time), _at(by, time)
    return _changes(Curve(time, np.divide(over, under, out=np.zeros(len(time)), where=under > 0.5)))


def thinned(curve: Curve, most: int = MOST_POINTS) -> Curve:
    """Return the curve, or means over `most` equal bins if it has more points than that."""
    if len(curve.time_ns) <= most:
        return curve
    width = -(-int(curve.time_ns[-1] - curve.time_ns[0]) // most)
    edges = curve.time_ns[0] + width * np.arange(most + 1)
    held = np.diff(curve.time_ns, append=curve.time_ns[-1])
    area = np.append(0.0, np.cumsum(curve.value * held))
    until = np.interp(edges, np.append(curve.time_ns, curve.time_ns[-1] + 1), area)
    means = Curve(edges[:-1], np.diff(until) / width, width)
    return Curve(np.append(means.time_ns, edges[-1]), np.append(means.value, 0.0), width)


def _at(curve: Curve, time: Ints) -> Floats:
    index = np.searchsorted(curve.time_ns, time, side="right") - 1
    return np.where(index >= 0, curve.value[np.maximum(index, 0)], 0.0) if len(curve.value) else np.zeros(len(time))


def _changes(curve: Curve) -> Curve:
    """Return the curve without points at which the value stays the same."""
    if not len(curve.value):
        return curve
    keep = np.append(True, ~np.isclose(curve.value[1:], curve.value[:-1], rtol=1e-9, atol=0))
    return Curve(curve.time_ns[keep], curve.value[keep], curve.bin_ns)
