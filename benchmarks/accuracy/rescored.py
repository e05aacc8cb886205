"""Chapter: today's predictions of past blind rounds, and intervals fitted without the machine they are tested on."""

import csv
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from accuracy.chapter import Chapter, NothingToCompareError, percent, table
from tracekit.analyzers.predict import MOST_QUOTED, Evidence, Sources, interval, uncertainty, widths

ROUNDS = Path(__file__).parents[1] / "blind" / "rounds"
_EVIDENCE: dict[str, Evidence] = {"capture": "timed", "trace": "profiled"}
_WORST = 5
_TIE = 0.03
_INTRO = """The rows of the last blind round, predicted again after the model was fixed for the errors that they showed,
with intervals whose widths were fitted on them, too: no test. Fixed were: GEMMs of experts are one op, and one kernel
in bf16 (a mixture in half precision: 1.7, now 8.6, measured 8.5); CUDA graphs are no longer refused because of copies
within the device; the cost of compiled launches follows the run's host. One error is not due to the model: steps of the
same run took 1.3 to 1.9 times as long when traced as when measured, and optimizations of host time gained
correspondingly less. The interval now includes this, and later rounds time each run in two processes."""
_LEFT_OUT = """Fraction of the rows inside their intervals (`analyzers/predict/intervals.toml`): all rows, and rows
whose machine, model family or optimization was left out when the widths were measured (mean of the groups):"""


def chapter(_: Path) -> Chapter:
    files = sorted(ROUNDS.glob("*/*/rescored.csv"))
    if not files:
        raise NothingToCompareError("no round was predicted again.")
    rows = [row for file in files for row in _rows(file)]
    head = [
        "predicted from",
        "rows",
        "mean error",
        "median error",
        "sign right",
        "inside",
        "median width",
        "not quoted",
    ]
    sections = [
        _INTRO,
        table(head, [_summary(name, rows) for name in _EVIDENCE], 7),
        "The worst five, from captures:\n\n" + _worst([row for row in rows if row["evidence"] == "capture"]),
        "### Intervals for rows that were left out\n\n" + _LEFT_OUT + "\n\n" + _left_out(),
    ]
    return Chapter("Blind rounds with today's model, which has seen them", "\n\n".join(sections))


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as opened:
        return [{**row, "machine": file.parent.name} for row in csv.DictReader(opened) if row["expected"]]


def sources_of(row: Mapping[str, str]) -> Sources:
    """Return what a row of rescored.csv depends on."""
    hosts = {float(name.removeprefix("host_")): float(value) for name, value in row.items() if name.startswith("host_")}
    return Sources((float(row["outcome_down"]), float(row["outcome_up"])), hosts)


def _ends(row: dict[str, str]) -> tuple[float, float]:
    gain = interval(float(row["expected"]), sources_of(row), widths(_EVIDENCE[row["evidence"]]))
    return gain.low, gain.high


def _error(row: dict[str, str]) -> float:
    return abs(float(row["expected"]) / float(row["measured"]) - 1)


def _right_sign(row: dict[str, str]) -> bool:
    predicted, measured = float(row["expected"]), float(row["measured"])
    return abs(measured - 1) <= _TIE or (predicted >= 1) == (measured >= 1)


def _summary(evidence: str, rows: Sequence[dict[str, str]]) -> list[object]:
    chosen = [row for row in rows if row["evidence"] == evidence]
    ends = [_ends(row) for row in chosen]
    spans = [high / low for low, high in ends]
    inside = [low <= float(row["measured"]) <= high for row, (low, high) in zip(chosen, ends, strict=True)]
    errors = [_error(row) for row in chosen]
    shares = fmean(errors), median(errors), fmean(map(_right_sign, chosen)), fmean(inside)
    not_quoted = sum(span > MOST_QUOTED for span in spans)
    return [f"{evidence}s", len(chosen), *map(percent, shares), f"{median(spans):.2f}×", not_quoted]


def _worst(rows: Sequence[dict[str, str]]) -> str:
    worst = sorted(rows, key=_error, reverse=True)[:_WORST]
    lines = []
    for row in worst:
        low, high = _ends(row)
        predicted = f"{float(row['expected']):.2f} [{low:.2f}, {high:.2f}]"
        steps = f"{float(row['after_us']) / 1e3:.2f} / {float(row['measured_after_us']) / 1e3:.2f}"
        lines.append(
            (row["machine"], row["run"], row["optimization"], f"{float(row['measured']):.2f}", predicted, steps)
        )
    head = ["machine", "run", "optimization", "measured", "predicted", "step with it, predicted / measured, ms"]
    return table(head, lines, 3)


def _left_out() -> str:
    text = Path(uncertainty.__file__).with_name("intervals.toml").read_text(encoding="utf-8")
    held, names = tomllib.loads(text), ("machine", "family", "optimization")
    lines = [
        (name, part["rows"], f"{part['span']:.2f}×", percent(part["inside"]), *(_share(part, key) for key in names))
        for name, part in held.items()
    ]
    return table(["predicted from", "rows", "median width", "all", *(f"without each {key}" for key in names)], lines, 6)


def _share(part: dict[str, float], key: str) -> str:
    share = part[f"left_out_{key}"]
    return "–" if math.isnan(share) else percent(share)
