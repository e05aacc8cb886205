"""What tracekit says of the traces of the slow scripts, and beside it what their mends gained.

    python benchmarks/cases/diagnose.py benchmarks/cases/h100                 # writes what is said
    python benchmarks/cases/diagnose.py benchmarks/cases/h100 --page          # rows of docs/diagnosis.md
    python benchmarks/cases/diagnose.py benchmarks/cases/h100 --page --blind  # the same, of the blind diagnosis

The first writes FOLDER/diagnosis.json from the traces FOLDER/CASE.json.gz; the others join it with what was measured,
FOLDER/measured.json. FOLDER/diagnosis_blind.json was written before the gains were looked at, and stays as it is.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from catalogue import Case, cases

import tracekit

BLIND, SEEN = "diagnosis_blind.json", "diagnosis.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--blind", action="store_true")
    asked = parser.parse_args()
    if asked.page:
        print(page(asked.folder, BLIND if asked.blind else SEEN))
        return
    rows = {case.name: diagnosis(asked.folder / f"{case.name}.json.gz", case) for case in cases().values()}
    (asked.folder / "diagnosis.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def diagnosis(trace: Path, case: Case) -> dict[str, Any]:
    """Bound, steps, advice in order with its interval, which GPUs the run does not fit, and what is predicted for the
    mend where that is another one than is advised."""
    analysis = tracekit.analyze(trace, use_cache=False)
    misfits = [gpu for gpu in case.projected_to if "does-not-fit" in set(tracekit.analyze(trace, gpu).problems.code)]
    return {
        "bound": analysis.bound.ranked()[0][0],
        "steps": len(analysis.steps),
        "advice": [{"id": each.id, **_ends(each.speedup)} for each in analysis.recommendations],
        "does_not_fit": misfits,
        **({"of_mend": _ends(tracekit.predict(trace, case.mended_by).speedup)} if case.mended_by else {}),
    }


def _ends(gain: tracekit.Interval) -> dict[str, float]:
    return {"low": gain.low, "expected": gain.expected, "high": gain.high}


def page(folder: Path, name: str) -> str:
    diagnosed = json.loads((folder / name).read_text("utf-8"))
    measured = json.loads((folder / "measured.json").read_text("utf-8"))["cases"]
    head = [
        "| case | bound | first advice | predicted | the mend gained | right | inside |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [_row(case, diagnosed[name], measured[name]) for name, case in cases().items()]
    return "\n".join([*head, *rows])


def _row(case: Case, diagnosed: dict[str, Any], measured: dict[str, Any]) -> str:
    """The prediction is of the mend that was measured, where that was asked for."""
    name, right = case.name, case.advice
    gain = measured["gain"]["median"]
    first = diagnosed["advice"][0] if diagnosed["advice"] else None
    if first is None:
        return f"| {name} | {diagnosed['bound']} | none | | {gain:.2f}× | no | |"
    is_right = first["id"] in right or (bool(diagnosed["does_not_fit"]) and "gradient-checkpointing" in right)
    asked = diagnosed.get("of_mend", first)
    inside = asked["low"] <= gain <= asked["high"] if first["id"] in right else None
    verdict = {True: "yes", False: "no", None: ""}
    predicted = f"{asked['low']:.2f} to {asked['high']:.2f}×"
    advice = case.mended_by if "of_mend" in diagnosed else first["id"]
    return (
        f"| {name} | {diagnosed['bound']} | `{advice}` | {predicted} | {gain:.2f}× | {verdict[is_right]} "
        f"| {verdict[inside]} |"
    )


if __name__ == "__main__":
    main()
