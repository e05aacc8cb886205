"""Matches the kernels of a trace to measured launches.

They match by name, blocks and threads per block. Among equal kernels, the k-th in the trace matches the k-th measured,
starting over after the last, because a report usually contains one step, or some layers, of a trace. Names are first
compared with their template arguments, then without.
"""

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

_KEY = ["name", "blocks", "threads_per_block"]


def match(kernels: pd.DataFrame, counters: pd.DataFrame) -> Ints:
    """Return the row in COUNTERS for each row of DEVICE; -1 if it was not measured, or is not a kernel."""
    row = np.full(len(kernels), -1, dtype=np.int64)
    for form in (full, base):
        wanted = np.flatnonzero((row < 0) & (kernels["category"] == "kernel").to_numpy())
        measured = np.setdiff1d(np.arange(len(counters)), row)
        position = _match_as(_keyed(kernels.iloc[wanted], form), _keyed(counters.iloc[measured], form))
        row[wanted] = np.append(measured, -1)[position]
    return row


def _match_as(kernels: pd.DataFrame, launches: pd.DataFrame) -> Ints:
    """Return positions in the launches; -1 for none."""
    by_turn = launches.drop(columns="device").assign(turn=launches.groupby(_KEY).cumcount())
    by_turn["position"] = np.arange(len(launches))
    size = launches.groupby(_KEY).size().rename("size").reset_index()
    turn = kernels.groupby([*_KEY, "device"]).cumcount()
    wanted = kernels.assign(turn=turn).merge(size, on=_KEY, how="left")
    wanted["turn"] = (wanted["turn"] % wanted["size"]).fillna(-1).astype(np.int64)
    position = wanted.merge(by_turn, on=[*_KEY, "turn"], how="left")["position"]
    return position.fillna(-1).to_numpy(np.int64)


def _keyed(launches: pd.DataFrame, form: Callable[[str], str]) -> pd.DataFrame:
    codes, distinct = pd.factorize(launches["name"])
    forms = np.array([*(form(str(name)) for name in distinct), ""], dtype=object)
    return launches[["blocks", "threads_per_block", "device"]].assign(name=forms[codes]).reset_index(drop=True)


_LAMBDA = re.compile(r"\{lambda\([^{}]*\)#(\d+)\}|\[lambda\([^\[\]]*\) \(instance (\d+)\)\]")
_PARENTHESES = re.compile(r"\([^()]*\)")
_INSIDE_A_FUNCTION = re.compile(r"::operator\s*(?:const\s*)?::|::(?=lambda\d)")
_NAMESPACE = re.compile(r"(?:\b\w+|<unnamed>)::")
_WORDS = re.compile(r"\b(?:void|const)\b")
_SUFFIX = re.compile(r"\b(\d+)[uUlL]+\b")
_SPACE = re.compile(r"\s+")
_MANGLED_PART = re.compile(r"\d+")
_LONGEST = 20_000


def full(name: str) -> str:
    """Return the name with its template arguments, without namespaces and parameters."""
    text = _LAMBDA.sub(lambda match: f"lambda{match[1] or match[2]}", name[:_LONGEST])
    text = _without_parameters(text.replace("(anonymous namespace)", "<unnamed>"))
    text = _WORDS.sub("", _INSIDE_A_FUNCTION.sub(".", text))
    text = _SUFFIX.sub(r"\1", _NAMESPACE.sub("", text))
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    return _SPACE.sub("", text)


def base(name: str) -> str:
    """Return the function's own name from a demangled or mangled name."""
    if name.startswith("_Z"):
        return _last_part(name)
    return full(name).split("<", 1)[0]


def _without_parameters(text: str) -> str:
    shorter = _PARENTHESES.sub("", text)
    while shorter != text:
        text, shorter = shorter, _PARENTHESES.sub("", shorter)
    return shorter


def _last_part(mangled: str) -> str:
    """Return the last of the length-prefixed parts of a mangled name (Itanium C++ ABI), which is the function."""
    at, last = 3 if mangled.startswith("_ZN") else 2, ""
    while match := _MANGLED_PART.match(mangled, at):
        end = match.end() + min(int(match[0][:6]), _LONGEST)
        last, at = mangled[match.end() : end], end
    return last or mangled
