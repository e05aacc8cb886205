"""The words of statements: `sentences.toml` has a sentence for each kind, into which values are filled."""

import string
from collections.abc import Iterator
from functools import cache, reduce
from pathlib import Path

import msgspec

from tracekit.analyzers.core import plugged, toml_table
from tracekit.analyzers.results import (
    NOT_SIMULATED,
    PROFILER,
    START_UP_ONLY,
    Analysis,
    Change,
    Considered,
    Evidence,
    OpClassTime,
    Statement,
    Statements,
)
from tracekit.reports.words.names import printable, shortened
from tracekit.reports.words.numbers import duration, percent, quantity, significant

SENTENCES = Path(__file__).parents[1] / "sentences.toml"

_LONGEST_NAME = 400
_MEMORY_BOUND = ("pointwise", "norm", "softmax", "reduction", "copy", "gather", "embedding", "loss")
_NAMED = 3
"""Number of op classes that an explanation names: those with the largest changes."""
_NEGLIGIBLE = 0.01
"""A change of less than this fraction of the step is not named."""


class Piece(msgspec.Struct, frozen=True):
    """A part of a sentence. `evidence` is the value that it quotes; None for the words between values."""

    text: str
    evidence: Evidence | None = None


@cache
def templates() -> dict[str, str]:
    """Return the sentence for each kind of statement, with the roles of its evidence in braces. `{times:op|ops}` is the
    first word if that value is 1, else the second."""
    own = toml_table(SENTENCES)
    added = [getattr(each, "sentences", {}) for each in plugged("tracekit.optimizations")]
    return reduce(lambda known, sentences: {**sentences, **known}, added, own)


def pieces(statement: Statement) -> tuple[Piece, ...]:
    """Return the sentence for a statement, split into words and quoted values."""
    values = {each.role: each for each in statement.evidence}
    return tuple(_pieces(templates()[statement.kind], values))


def _pieces(sentence: str, values: dict[str, Evidence]) -> Iterator[Piece]:
    for words, role, agreeing, _ in string.Formatter().parse(sentence):
        if words:
            yield Piece(words)
        if agreeing:
            one, _, many = agreeing.partition("|")
            yield Piece(one if values[str(role)].value == 1 else many)
        elif role:
            yield Piece(written(values[role]), values[role])


def sentence(statement: Statement) -> str:
    """Return the sentence for a statement."""
    return "".join(piece.text for piece in pieces(statement))


def sentences(statements: Statements) -> str:
    """Return the sentences for several statements, joined."""
    return " ".join(map(sentence, statements))


def lines(statements: Statements) -> tuple[str, ...]:
    """Return the sentence for each statement."""
    return tuple(map(sentence, statements))


def written(evidence: Evidence) -> str:
    """Return the value with the unit of its column: 43 %, 12.3 µs, 4.5 GB, 1,024."""
    value, unit, column = evidence.value, evidence.unit, evidence.column
    if isinstance(value, str):
        return shortened(printable(value), _LONGEST_NAME)
    if column.rpartition("_")[2] in ("share", "fraction"):
        return percent(value)
    if unit == "ns":
        return duration(value / 1000)
    if unit:
        return quantity(value, unit)
    return f"{value:,}" if isinstance(value, int) else significant(value)


def why(option: Considered) -> str:
    """Return why an optimization is recommended, or why not."""
    return " ".join(part for part in (option.objection, sentences(option.reason), *option.notes) if part)


def explained(change: Change | None) -> str:
    """Return, for example, "A step takes 1.61 ms instead of 5.77 ms: host and gaps 4.48 ms → 0.31 ms, gemm ..."."""
    if change is None:
        return ""
    times = change.by_op_class
    before, after = sum(each.before_ns for each in times), sum(each.after_ns for each in times)
    changes = sorted(_spoken(times), key=lambda each: -abs(each.after_ns - each.before_ns))
    named = [each for each in changes[:_NAMED] if abs(each.after_ns - each.before_ns) > _NEGLIGIBLE * before]
    parts = [f"{each.op_class} {_time(each.before_ns)} → {_time(each.after_ns)}" for each in named]
    what = "A step" if change.work == 1 else f"A step of {change.work:g} times the work"
    return f"{what} takes {_time(after)} instead of {_time(before)}: {', '.join(parts) or 'no class of ops changes'}."


def _spoken(times: tuple[OpClassTime, ...]) -> list[OpClassTime]:
    """Return the simulated classes. Memory-bound classes are merged, because fusing moves time between them."""
    simulated = [each for each in times if each.op_class not in (PROFILER, NOT_SIMULATED)]
    bound = [each for each in simulated if each.op_class in _MEMORY_BOUND]
    together = OpClassTime("memory-bound ops", sum(e.before_ns for e in bound), sum(e.after_ns for e in bound))
    return [*(each for each in simulated if each not in bound), together]


def _time(ns: float) -> str:
    return duration(ns / 1e3) if ns else "0"


_NOTHING = "No optimization that tracekit knows is predicted to help"
_REASONS = 2
_LITTLE = 0.5
"""Fraction of the busy time with known shapes below which more advice may remain undiscovered."""


def abstention(analysis: Analysis) -> str | None:
    """Return why nothing is recommended; None if something is."""
    if analysis.recommendations:
        return None
    if analysis.one_time_share >= START_UP_ONLY:
        return "Nothing can be predicted: most of the recording is start-up. Record after warm-up."
    if can_predict(analysis):
        return _NOTHING + _hidden(analysis) + "."
    messages = [str(row) for row in analysis.problems.loc[analysis.problems["severity"] != "info", "message"]]
    if analysis.source.device == "cpu":
        messages.insert(0, "The trace contains no work of a GPU.")
    return printable(" ".join(["Nothing can be predicted.", *messages[:_REASONS]]))


def can_predict(analysis: Analysis) -> bool:
    """Return whether the effect of optimizations can be predicted from the run."""
    return analysis.predicted_from is not None


def helpless(analysis: Analysis) -> str:
    """Return that nothing is recommended, as a sentence without a full stop."""
    if not can_predict(analysis):
        return "Nothing can be predicted"
    if (lacks := lacking(analysis)) and analysis.bound.launch >= _NOTABLE:
        return f"Nothing can be advised for it: the trace {lacks}"
    return "No optimization is predicted to help"


_NOTABLE = 0.15
"""Share of a step in which the GPU is idle from which advice for the host is missed."""


def lacking(analysis: Analysis) -> str:
    """Return what the trace lacks to say what the GPU waits for; "" if nothing."""
    if analysis.problems["code"].isin(["no-host-events"]).any():
        return "contains no events of the host"
    work = analysis.work
    on_device = work["category"] != "op"
    return "" if (work["launch"] >= 0)[on_device].any() or not on_device.any() else "does not record the launches"


def _hidden(analysis: Analysis) -> str:
    """Return that more optimizations may help than are known, if little is known about the work; "" otherwise."""
    if analysis.source.device == "cpu":
        return ""
    if lacks := lacking(analysis):
        return f", as far as known: the trace {lacks}"
    if min(analysis.coverage.op, analysis.coverage.cost) >= _LITTLE:
        return ""
    return ", as far as known: the trace does not record shapes and types of most of its work"
