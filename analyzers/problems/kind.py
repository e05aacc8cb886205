"""The definition of a kind of problem."""

from typing import Literal

import msgspec

Severity = Literal["info", "warning", "error"]


class Kind(msgspec.Struct, frozen=True):
    """A kind of problem.

    `message` may use {count}, {detail}, {s} (a plural s), {were} ("was" or "were"), and {one|many}, such as {has|have}.
    """

    code: str
    severity: Severity
    message: str
    advice: str
