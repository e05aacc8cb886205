"""Escapes text from a trace, so that no terminal, spreadsheet or browser interprets it.

`names.printable` does this for one name; the functions here do it for a whole output.
"""

import json
import re
from typing import TYPE_CHECKING, Any

from tracekit.reports.words.names import UNPRINTABLE, printable

if TYPE_CHECKING:
    import pandas as pd


_FORMULA = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]")
_GUARD = "'"
_RAW_IN_JSON = re.compile(UNPRINTABLE.pattern.replace("\x00-\x1f", ""))
"""JSON encoders escape the characters below 0x20 themselves."""


def printable_lines(text: str) -> str:
    """Return `text` made printable; line breaks and tabs are kept."""
    if text.isascii() and text.isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def csv_cell(text: str) -> str:
    """Return `text` for a CSV cell; an apostrophe in front keeps a spreadsheet from evaluating a formula."""
    safe = printable(text)
    return _GUARD + safe if _FORMULA.match(safe) else safe


def from_csv_cell(text: str) -> str:
    """Return the text that `csv_cell` escaped; replaced characters are not restored."""
    return text.removeprefix(_GUARD) if _FORMULA.match(text, len(_GUARD)) else text


def csv_table(frame: "pd.DataFrame") -> str:
    """Return a table as CSV with a header row; unknown values are empty."""
    texts = frame.select_dtypes(exclude=["number", "bool"])
    cells = {name: [_cell(value) for value in texts[name]] for name in texts.columns}
    return frame.assign(**cells).to_csv(index=False, lineterminator="\n")


def _cell(value: Any) -> Any:
    return csv_cell(value) if isinstance(value, str) else value


def json_text(value: Any) -> str:
    """Return `value` as indented JSON that has only printable characters."""
    return escaped_json(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def escaped_json(text: str) -> str:
    r"""Return JSON with every unprintable character written as \uXXXX, so that no name is changed."""
    return _RAW_IN_JSON.sub(lambda character: f"\\u{ord(character[0]):04x}", text)
