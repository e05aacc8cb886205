"""Defines what Proton records about a kernel launch."""

from dataclasses import dataclass, field

from tracekit.analyzers.trace import DeviceProperties

ROOT = "ROOT"
TRANSPARENT = frozenset(("<captured_at>",))
"""Scopes that Proton adds between the replay of a graph and the scopes of its capture."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel that ran, and the scopes (or Python functions) in which it was launched, outermost first."""

    scopes: tuple[str, ...]
    name: str
    start_ns: int
    duration_ns: int
    device: int = -1
    stream: int = -1


@dataclass
class Profile:
    """The launches of a profile. `summed` counts launches of which only sums are known, `unreadable` events that are
    not launches. `damage` says why the profile ends early."""

    launches: list[Launch] = field(default_factory=list)
    devices: tuple[DeviceProperties, ...] = ()
    summed: int = 0
    unreadable: int = 0
    damage: str = ""


def below_root(names: list[str]) -> tuple[str, ...]:
    """Return the scopes without Proton's root."""
    return tuple(name for name in (names[1:] if names[:1] == [ROOT] else names) if name not in TRANSPARENT)
