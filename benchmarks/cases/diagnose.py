"""Compares tracekit's advice for the traces of slow scripts with the measured gain of the fixed scripts.

    python benchmarks/cases/diagnose.py benchmarks/cases/h100                 # writes what is said
    python benchmarks/cases/diagnose.py benchmarks/cases/h100 --page          # rows of docs/diagnosis.md
    python benchmarks/cases/diagnose.py benchmarks/cases/h100 --page --blind  # the same, of the blind diagnosis
    python benchmarks/cases/diagnose.py benchmarks/cases/h100_second --set 2 --blind  # writes a blind diagnosis
    python benchmarks/cases/diagnose.py benchmarks/cases --summary            # all blind diagnoses, a row a set

The first writes FOLDER/diagnosis.json from the traces FOLDER/CASE.json.gz; `--page` joins it with what was measured,
FOLDER/measured.json. FOLDER/diagnosis_blind.json is written before the gains are looked at, and never again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from catalogue import SETS, Case, cases

import tracekit

BLIND, SEEN = "diagnosis_blind.json", "diagnosis.json"
RECORDED = {
    1: "h100",
    2: "h100_second",
    3: "h100_third",
    4: "h100_fourth",
    5: "h100_fifth",
    6: "h100_sixth",
    7: "h100_seventh",
    8: "h100_eighth",
    9: "h100_ninth",
}
"""Folder of the recorded cases of each set."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--blind", action="store_true")
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--set", type=int, choices=list(SETS), default=1)
    asked = parser.parse_args()
    name = BLIND if asked.blind else SEEN
    if asked.summary:
        print(summary(asked.folder))
    elif asked.page:
        print(page(asked.folder, name, asked.set))
    elif asked.blind and (asked.folder / name).exists():
        parser.error(f"{asked.folder / name} was written before the gains were known; it stays as it is")
    else:
        rows = diagnoses(asked.folder, asked.set)
        (asked.folder / name).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def diagnoses(folder: Path, number: int) -> dict[str, Any]:
    """Return the diagnosis of each recorded case."""
    traces = {case: folder / f"{case.name}.json.gz" for case in cases(number).values()}
    return {case.name: diagnosis(trace, case) for case, trace in traces.items() if trace.exists()}


def diagnosis(trace: Path, case: Case) -> dict[str, Any]:
    """Bound, steps, advice in order with its interval, GPUs whose memory is too small, and the prediction for the
    measured fix if that differs from the first advice."""
    analysis = tracekit.analyze(trace, use_cache=False)
    misfits = [gpu for gpu in case.projected_to if "does-not-fit" in set(tracekit.analyze(trace, gpu).problems.code)]
    return {
        "bound": analysis.bound.ranked()[0][0],
        "steps": len(analysis.steps),
        "advice": [{"id": each.id, **_ends(each.speedup)} for each in analysis.recommendations],
        "does_not_fit": misfits,
        **(_of_fix(trace, case.fixed_by) if case.fixed_by else {}),
    }


def _of_fix(trace: Path, fix: str) -> dict[str, Any]:
    """Return the prediction for the fixed script; empty if it is refused."""
    try:
        return {"of_mend": _ends(tracekit.predict(trace, fix).speedup)}
    except tracekit.TracekitError:
        return {}


def _ends(gain: tracekit.Interval) -> dict[str, float]:
    return {"low": gain.low, "expected": gain.expected, "high": gain.high}


def summary(folder: Path) -> str:
    """Return a table of the blind diagnoses: how often the first advice is right, and the gain inside its interval."""
    lines = ["| set | scripts | first advice names the cause | gain inside the interval |", "|---|---:|---:|---:|"]
    for number, name in RECORDED.items():
        if (folder / name / BLIND).exists():
            told = [row for row in page(folder / name, BLIND, number).splitlines()[2:] if _NOT_RECORDED not in row]
            rows = [row.split("|")[-3:-1] for row in told]
            right, inside = ([cells[at].strip() for cells in rows] for at in (0, 1))
            judged = [each for each in inside if each]
            hits = f"{judged.count('yes')} of {len(judged)}"
            lines.append(f"| {_ORDINALS[number]} | {len(rows)} | {right.count('yes')} | {hits} |")
    return "\n".join(lines)


_NOT_RECORDED = "not recorded"
_ORDINALS = {
    1: "first",
    2: "second",
    3: "third",
    4: "fourth",
    5: "fifth",
    6: "sixth",
    7: "seventh",
    8: "eighth",
    9: "ninth",
}


def page(folder: Path, name: str, number: int = 1) -> str:
    diagnosed = json.loads((folder / name).read_text("utf-8"))
    measured = json.loads((folder / "measured.json").read_text("utf-8"))["cases"]
    head = [
        "| case | bound | first advice | predicted | gain of the fix | right | inside |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [_row(case, diagnosed.get(name), measured.get(name, {})) for name, case in cases(number).items()]
    return "\n".join([*head, *rows])


def _row(case: Case, diagnosed: dict[str, Any] | None, measured: dict[str, Any]) -> str:
    """Return a row of the page. The prediction is that for the measured fix if it is the first advice."""
    if diagnosed is None or "gain" not in measured:
        return f"| {case.name} | | {_NOT_RECORDED} | | | | |"
    gain = measured["gain"]["median"]
    right = "yes" if _is_right(diagnosed, case) else "no"
    if not diagnosed["advice"]:
        return f"| {case.name} | {diagnosed['bound']} | none | | {gain:.2f}× | {right} | |"
    first = diagnosed["advice"][0]
    is_measured = first["id"] in case.measured_ids
    asked = diagnosed.get("of_mend", first) if is_measured else first
    advice = case.fixed_by if is_measured and "of_mend" in diagnosed else first["id"]
    inside = ("yes" if asked["low"] <= gain <= asked["high"] else "no") if is_measured else ""
    return (
        f"| {case.name} | {diagnosed['bound']} | `{advice}` | {asked['low']:.2f} to {asked['high']:.2f}× "
        f"| {gain:.2f}× | {right} | {inside} |"
    )


def _is_right(diagnosed: dict[str, Any], case: Case) -> bool:
    """Where a trace is projected to GPUs, all of them must be said to be too small. Checkpointing gains nothing where
    the run fits, so that this is enough there."""
    misfits = diagnosed["does_not_fit"]
    if set(misfits) != set(case.projected_to):
        return False
    first = diagnosed["advice"][0]["id"] if diagnosed["advice"] else ""
    return first in case.advice or bool(misfits and "gradient-checkpointing" in case.advice)


if __name__ == "__main__":
    main()
