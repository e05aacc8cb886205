"""Versions of packages that a run records."""

import re

from tracekit.analyzers.prediction.baseline import Baseline

Version = tuple[int, ...]


def version_text(base: Baseline, package: str) -> str:
    """Return the version as recorded; "" if it is not."""
    return base.source.capture.versions.get(package, "") if base.source.capture else ""


def version_of(base: Baseline, package: str) -> Version:
    """Return the first two numbers of the version; () if none is recorded."""
    return first_two(version_text(base, package))


def first_two(version: str) -> Version:
    """Return the first two numbers of a version; () if it does not begin with them."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, numbers.groups())) if numbers else ()
