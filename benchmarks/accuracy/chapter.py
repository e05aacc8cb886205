"""The value that a chapter returns for the page: its text, and the targets that it judges."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


class NothingToCompareError(Exception):
    """The chapter's measurements are absent; the message says which."""


@dataclass(frozen=True)
class Target:
    claim: str
    limit: str
    measured: str
    met: bool
    seen: bool = False
    """Constants were fitted to these rows. Such a target is no test, and is never called met."""

    @property
    def verdict(self) -> str:
        if not self.met:
            return "**missed**"
        return "within, of rows that constants saw" if self.seen else "met"


@dataclass(frozen=True)
class Chapter:
    title: str
    text: str
    """Markdown below the title, without it."""
    targets: tuple[Target, ...] = ()


def at_most(claim: str, limit: float, measured: float) -> Target:
    """A target for a share, such as a mean error: 0.1 is 10 %."""
    return Target(claim, f"≤ {percent(limit)}", percent(measured, 1), measured <= limit)


def at_least(claim: str, limit: float, measured: float) -> Target:
    return Target(claim, f"≥ {percent(limit)}", percent(measured, 1), measured >= limit)


def within(claim: str, low: float, high: float, measured: float) -> Target:
    return Target(claim, f"{percent(low)} to {percent(high)}", percent(measured, 1), low <= measured <= high)


def seen(*targets: Target) -> tuple[Target, ...]:
    """Mark targets that are judged on rows to which constants were fitted."""
    return tuple(replace(target, seen=True) for target in targets)


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: int) -> str:
    """Return a Markdown table whose last `numbers` columns are right-aligned."""
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    lines = [head, rule, *[[str(cell) for cell in row] for row in rows]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
