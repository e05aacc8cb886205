"""Parses numbers as a report writes them, in any locale: "1,234.56", "1.234,56", "1 234,56", "1'234.56"."""

import re
from collections.abc import Iterable
from math import nan

_GROUPED = re.compile(r"[\s'\u2019\u00a0\u202f]")
_OTHER = {".": ",", ",": "."}
_ENDS_IN_A_GROUP = re.compile(r"\d{1,3}[.,]\d{3}")


def decimal_mark(texts: Iterable[str]) -> str:
    """Return the decimal mark of the numbers in one file, "." or ",".

    A mark before fewer or more than three digits, or after another mark, is decimal. A mark that occurs twice separates
    thousands.
    """
    votes = {".": 0, ",": 0}
    for text in set(texts):
        if mark := _shown_by(text.strip()):
            votes[mark] += 1
    return "," if votes[","] > votes["."] else "."


def parse(text: str, mark: str) -> float:
    """Parse a number; NaN for any other text ("", "n/a", "PolicySpread", a list of instances)."""
    whole, separator, fraction = _GROUPED.sub("", text).partition(mark)
    try:
        return float(whole.replace(_OTHER[mark], "") + separator.replace(",", ".") + fraction)
    except ValueError:
        return nan


def _shown_by(text: str) -> str:
    dots, commas = text.count("."), text.count(",")
    if dots and commas:
        return "." if text.rfind(".") > text.rfind(",") else ","
    if dots + commas == 1:
        return "" if _ENDS_IN_A_GROUP.fullmatch(text) else "." if dots else ","
    return "," if dots else "." if commas else ""
