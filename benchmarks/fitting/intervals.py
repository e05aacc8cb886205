"""Measures how wide the intervals of predictions must be, by conformal prediction, and writes the widths.

    python -m benchmarks fitting.intervals SHARED [--check]      # analyzers/predict/intervals.toml
    python -m benchmarks fitting.intervals --only script         # one section of it

Rows: optimizations measured on an H200 (benchmarks/data), the blind rounds that were measured (rescored.csv), and
published results, each predicted by today's model. Widths (tracekit/analyzers/predict/uncertainty.py) are the smallest
that hold 85 % of the rows, machines counting the same. How that holds for a machine, a family of models or an
optimization that was left out stands in the file, too. For traces of other scripts, see benchmarks/fitting/scripts.py.
"""

import argparse
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.accuracy import published, speedup_rows
from benchmarks.blind import joined
from benchmarks.blind.predict import HOST_LOGS
from benchmarks.fitting import scripts
from benchmarks.fitting.conformal import NAMES, Judged, fit, inside, spans, without_each
from tracekit.advise import parse, refusal, scenarios, speedup, unchanged
from tracekit.advise.outcomes import sources
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.predict import Baseline, Evidence, Sources

_ROOT = Path(__file__).parents[2]
TARGET = _ROOT / "analyzers" / "predict" / "intervals.toml"
EVIDENCE: tuple[Evidence, ...] = ("timed", "profiled", "script", "timed-script", "modelled")
_OF_ROUND = {"capture": "timed", "trace": "profiled"}
_OF_SCRIPTS = {"script": scripts.blind_rows, "timed-script": scripts.told_rows}
_GROUPS = {"machine": "machine", "family": "family of models", "optimization": "optimization"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, nargs="?", help="folder with the published results")
    parser.add_argument("--only", choices=EVIDENCE, help="measure one section again, and keep the others")
    parser.add_argument("--check", action="store_true", help="say what would be written, and write nothing")
    asked = parser.parse_args()
    if asked.shared is None and asked.only in (None, "modelled"):
        parser.error("the published results are in the shared folder, which is not named")
    names = [asked.only] if asked.only else EVIDENCE
    known = _sections() if asked.only else {}
    known |= {name: _section(name, asked.shared) for name in names}
    text = "\n".join([_HEAD, *(known[name] for name in EVIDENCE)])
    if asked.check:
        sys.stdout.write(text)
    else:
        TARGET.write_text(text, encoding="utf-8")
    return 0


_HEAD = """# How wide intervals of predicted speed-ups are, by what a prediction starts from: factors on its sources of
# uncertainty (uncertainty.py). Written by `python -m benchmarks fitting.intervals`; do not edit. rows: predicted and
# measured; inside: of them; span: median of the upper over the lower end; left_out: part inside where the widths were
# measured without each machine, family of models and optimization, mean of the groups. script: errors of gains (Untold)
# that were predicted blind, without or with the latency told: of the last eight sets; left_out: of these, each set
# left out; every: of all sets.
"""


def _sections() -> dict[str, str]:
    """Return the sections of the file as it is."""
    parts = re.split(r"(?m)^(?=\[)", TARGET.read_text(encoding="utf-8"))[1:]
    return {part[1 : part.index("]")]: part.rstrip() + "\n" for part in parts}


def of_evidence(name: Evidence, shared: Path | None) -> list[Judged]:
    """Return every row that was predicted from this kind of evidence, and measured."""
    assert shared is not None or name != "modelled"
    if name == "modelled":
        return list(_published(shared))
    return [*_on_h200(name), *of_rounds(name)]


def _section(name: Evidence, shared: Path | None) -> str:
    return _of_scripts(name) if name in _OF_SCRIPTS else _of_rows(name, of_evidence(name, shared))


def _of_rows(name: Evidence, rows: list[Judged]) -> str:
    found = fit(rows)
    left_out = {key: without_each(rows, lambda row, key=key: getattr(row, key)) for key in _GROUPS}
    lines = [f"[{name}]", *(f"{key} = {value:.3f}" for key, value in zip(NAMES, found, strict=True))]
    lines += [f"rows = {len(rows)}", f"inside = {inside(rows, found).mean():.3f}"]
    lines += [f"span = {np.median(spans(rows, found)):.2f}"]
    lines += [f"left_out_{key} = {_mean(by_group):.3f}  # {len(by_group)}" for key, by_group in left_out.items()]
    return "\n".join([*lines, ""])


def _of_scripts(name: Evidence) -> str:
    """Return the section of scripts, with the errors of gains that no trace shows."""
    every = _OF_SCRIPTS[name]()
    rows = [row for row in every if row.set in scripts.recent()]
    found = scripts.fit(every)
    others, all_sets = (scripts.left_out(every, judged) for judged in (rows, every))
    assert found.untold is not None
    lines = [f"[{name}]", *(f"{key} = {getattr(found, key):.3f}" for key in NAMES)]
    lines += [f"{key} = {getattr(found.untold, key):.2f}" for key in ("gain", "waiting", "beyond")]
    named = {"": [(row, row.interval(found)) for row in rows], "left_out_": others, "every_": all_sets}
    for prefix, pairs in named.items():
        count, hits, span, score = scripts.summary(pairs)
        lines += [f"{prefix}rows = {count}", f"{prefix}inside = {hits:.3f}"]
        lines += [f"{prefix}span = {span:.2f}", f"{prefix}score = {score:.2f}"]
    return "\n".join([*lines, ""])


def _mean(widths: Mapping[str, float]) -> float:
    known = [value for value in widths.values() if not math.isnan(value)]
    return sum(known) / len(known) if known else float("nan")


def _on_h200(evidence: str) -> Iterator[Judged]:
    for row in speedup_rows.predicted_before():
        base = speedup_rows.baselines(timed=evidence == "timed").get(row.run)
        prediction = _predicted(base, row.optimization) if base else None
        if prediction:
            residual = math.log(row.measured / prediction[0])
            yield Judged(evidence, "h200", family(row.run[0]), kind(row.optimization), residual, prediction[1])


def _predicted(base: Baseline, name: str) -> tuple[float, Sources] | None:
    try:
        optimization = parse(name)
    except TracekitError:
        return None
    if refusal(optimization, base):
        return None
    before, after = unchanged(base, HOST_LOGS), scenarios(optimization, base, HOST_LOGS)
    return speedup(before, after).expected, sources(before, after)


def of_rounds(evidence: str) -> Iterator[Judged]:
    """Yield the rows of the blind rounds as a later model predicted them from this evidence."""
    for row in joined.published():
        if row["later_expected"] and _OF_ROUND.get(row["evidence"]) == evidence:
            residual = math.log(float(row["measured"]) / float(row["later_expected"]))
            name, machine = kind(row["optimization"]), f"{row['machine']} of round {row['round']}"
            yield Judged(evidence, machine, family(row["model"]), name, residual, sources_of(row))


def sources_of(row: Mapping[str, str]) -> Sources:
    """Return what the later prediction of a row of a blind round depends on."""
    hosts = {float(name.removeprefix("host_")): float(value) for name, value in row.items() if name.startswith("host_")}
    return Sources((float(row["outcome_down"]), float(row["outcome_up"])), hosts)


def _published(shared: Path) -> Iterator[Judged]:
    for case in published.cases(shared):
        prediction = published.predicted(case)
        residual = math.log(case.speedup / prediction.speedup.expected)
        yield Judged("modelled", case.gpu, family(case.model), kind(case.apply), residual, prediction.sources)


def family(model: str) -> str:
    """Return the family of a model: the first word of its name."""
    return (re.match(r"[a-z]+", model.lower()) or [model])[0]


def kind(optimization: str) -> str:
    """Return the optimization without its argument."""
    return "+".join(step.partition(":")[0] for step in optimization.split("+"))


if __name__ == "__main__":
    sys.exit(main())
