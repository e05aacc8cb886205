"""The definition of a kind of problem."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Kind:
    """A kind of problem.

    `message` may use {count}, {detail}, {s} (a plural s), {were} ("was" or "were"), and {one|many}, such as {has|have}.
    """

    code: str
    severity: Severity
    message: str
    advice: str
