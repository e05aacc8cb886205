"""Measured optimizations, as plain Python values for JSON and as a document."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import Analysis, Difference, Quality, Verification, Verified
from tracekit.reports.answer.advice_export import interval
from tracekit.reports.document import Block, Document, Listing, Table, Text
from tracekit.reports.words import (
    ABSENT,
    changed,
    duration,
    fields,
    measured,
    number,
    percent,
    printable,
    quantity,
    significant,
    speedup,
)

_LEGEND = (
    "In brackets: 95 % interval of the median. off by: root mean square of the outputs' difference, relative to that "
    "of the outputs before; same: share of positions with the same most likely token."
)


def result(verified: Verified) -> dict[str, Any]:
    """Return one verified optimization as analysis.schema.json describes it. Times are in µs, sizes in bytes."""
    gains = {name: getattr(verified, name) for name in ("predicted", "measured", "repredicted")}
    return {
        **fields(verified, "id title"),
        **{name: interval(gain) if gain else None for name, gain in gains.items()},
        **fields(verified, "inside error? work_factor"),
        "before_us": number(verified.before.median_us, 3) if verified.before else None,
        "after_us": number(verified.after.median_us, 3) if verified.after else None,
        **fields(verified, "predicted_peak_bytes peak_memory_bytes?"),
        "difference": asdict(verified.difference) if verified.difference else None,
        "quality": quality(verified.quality) if verified.quality else None,
        "caveats": list(verified.caveats),
    }


def quality(judged: Quality) -> dict[str, Any]:
    return {**asdict(judged), "change": interval(judged.change) if judged.change else None}


def measured_document(verification: Verification) -> Document:
    """Return a table with one row for each measured optimization, followed by failures and caveats."""
    return Document("Measured optimizations", [Text(_heading(verification)), *measured_blocks(verification)])


def measured_blocks(verification: Verification) -> list[Block]:
    done = [each for each in verification.results if each.measured]
    judged = [(each.id, each.quality) for each in done if each.quality]
    return [
        *([_table(done, verification)] if done else []),
        *([_judged(judged)] if judged else []),
        *([Text(_LEGEND, "soft")] if done else []),
        Listing(_remarks(verification)),
    ]


def _heading(verification: Verification) -> str:
    run = verification.settings
    batch = f"batch {run['batch_size']}" if run["batch_size"] else ""
    what = ", ".join(filter(None, (run["name"] or run["model"], run["workload"], batch, run["dtype"])))
    return f"{what}, on {verification.device_name}; seed {verification.seed}"


def _table(results: Sequence[Verified], verification: Verification) -> Table:
    rows = [(_with_spaces(verified.id), *_cells(verified, verification)) for verified in results]
    names = ("predicted", "measured", "step", f"{verification.unit}/s", "peak memory", "off by", "same")
    return Table(("optimization", *(f">{name}" for name in names)), rows)


def quality_document(name: str, judged: Quality) -> Document:
    return Document("Quality", [_judged([(name, judged)])])


def _judged(judged: Sequence[tuple[str, Quality]]) -> Table:
    """Return a table with one row for each judged change."""
    rows = [
        (
            _with_spaces(name),
            found.by,
            f"{found.measure} {significant(found.before)} → {significant(found.after)}",
            changed(found.change) if found.change else significant(found.after - found.before),
            ABSENT if found.agreement is None else percent(found.agreement),
            ABSENT if found.kl is None else significant(found.kl),
        )
        for name, found in judged
    ]
    names = (">before → after", ">change, 95 % interval", ">same token", ">KL")
    return Table(("optimization", "judged by", *names), rows)


def _with_spaces(name: str) -> str:
    """Return the ids of an optimization so that its line can be broken."""
    return name.replace("+", " + ")


def _cells(verified: Verified, verification: Verification) -> tuple[str, ...]:
    gain, before, after = verified.measured, verified.before, verified.after
    work = verification.items * verified.work_factor * 1e6
    return (
        speedup(verified.predicted) if verified.predicted else ABSENT,
        f"{measured(gain)} ({speedup(gain).removesuffix('×')})" if gain else ABSENT,
        from_to(before.median_us, after.median_us, duration) if before and after else ABSENT,
        significant(work / after.median_us) if after else ABSENT,
        _memory_cell(verified, verification),
        *_difference_cells(verified.difference),
    )


def from_to(before: float, after: float, write: Callable[[float], str]) -> str:
    """Return "3.82 → 1.70 ms"; the unit is written once if both values have the same one."""
    (first, unit), second = write(before).rsplit(" ", 1), write(after)
    return f"{first} → {second}" if second.endswith(f" {unit}") else f"{first} {unit} → {second}"


def _memory_cell(verified: Verified, verification: Verification) -> str:
    if not verified.peak_memory_bytes:
        return ABSENT
    return from_to(verification.peak_memory_bytes, verified.peak_memory_bytes, lambda size: quantity(size, "B"))


def _difference_cells(difference: Difference | None) -> tuple[str, str]:
    if difference is None:
        return (ABSENT, ABSENT)
    apart = f"{significant(100 * difference.relative)} %" if difference.relative >= 1e-6 else "0"
    return apart, ABSENT if difference.agreement is None else percent(difference.agreement)


def _remarks(verification: Verification) -> list[str]:
    refused = [
        (_named(verified), f"not measured. {why_not(verified)}") for verified in verification.results if verified.error
    ]
    caveats = [
        (verified.id, line)
        for verified in verification.results
        if not verified.error
        for line in (*_pace_remark(verified), *verified.caveats)
    ]
    return [*_together(refused), *_together(caveats), *verification.caveats]


def _pace_remark(verified: Verified) -> tuple[str, ...]:
    if not (verified.repredicted and verified.before):
        return ()
    took = f"Without it, the run took {duration(verified.before.median_us)} here, unlike when it was recorded. "
    return (f"{took}From that latency, {speedup(verified.repredicted)} is predicted.",)


def why_not(verified: Verified) -> str:
    """Return the error, without its first sentence if that only repeats the optimization's title."""
    return verified.error.removeprefix(f"{verified.title} cannot be applied here. ")


def _named(verified: Verified) -> str:
    return f"{verified.id} (predicted {speedup(verified.predicted)})" if verified.predicted else verified.id


def _together(remarks: Iterable[tuple[str, str]]) -> list[str]:
    """Return the remarks, each once, preceded by the names that it applies to."""
    names_of: dict[str, list[str]] = {}
    for name, line in remarks:
        names_of.setdefault(line, []).append(name)
    return [f"{', '.join(names)}: {line}" for line, names in names_of.items()]


class MeasuredGain(msgspec.Struct, frozen=True):
    measured: Interval | None
    inside: Literal["yes", "less", "more", ""]
    """Whether the measured speed-up lies in the predicted interval; "" if one of them is missing."""
    memory: str
    difference: str
    error: str


def measured_gains(analysis: Analysis) -> dict[str, MeasuredGain]:
    """Return the measured gains by optimization id: the largest first, failures last; {} if nothing was verified."""
    if analysis.verified is None:
        return {}
    ranked = sorted(analysis.verified.results, key=lambda each: -each.measured.expected if each.measured else 0.0)
    return {printable(each.id): _gain(each, analysis.verified) for each in ranked}


def of_advice(gains: Mapping[str, MeasuredGain], optimization: str) -> MeasuredGain | None:
    """Return the gain of one optimization without others, with any argument; None if it was not measured."""
    return next((gain for name, gain in gains.items() if name.split(":")[0] == optimization), None)


def of_steps(gains: Mapping[str, MeasuredGain], names: Sequence[str]) -> MeasuredGain | None:
    """Return the gain of several optimizations applied together, in any order; None if it was not measured."""
    return next((gain for name, gain in gains.items() if set(name.split("+")) == set(names)), None)


def _gain(result: Verified, of: Verification) -> MeasuredGain:
    return MeasuredGain(
        measured=result.measured,
        inside=_place_in_interval(result),
        memory=_memory(of.peak_memory_bytes, result.peak_memory_bytes),
        difference="; ".join(filter(None, (_difference(result.difference), _quality(result.quality)))),
        error=printable(why_not(result)),
    )


def _place_in_interval(result: Verified) -> Literal["yes", "less", "more", ""]:
    if result.predicted is None or result.measured is None:
        return ""
    if result.inside:
        return "yes"
    return "less" if result.measured.expected < result.predicted.low else "more"


def _memory(before: int, after: int) -> str:
    return f"{quantity(before, 'B')} → {quantity(after, 'B')}" if before and after else ""


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return ""
    percentage = significant(100 * difference.relative)
    apart = f"outputs differ by {percentage} %" if difference.relative >= 1e-6 else "same outputs"
    return apart if difference.agreement is None else f"{apart}, {percent(difference.agreement)} of the choices agree"


def _quality(judged: Quality | None) -> str:
    if judged is None:
        return ""
    values = f"{judged.measure} of {printable(judged.by)} {significant(judged.before)} → {significant(judged.after)}"
    return f"{values}, {changed(judged.change)}" if judged.change else values
