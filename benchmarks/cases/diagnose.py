"""What tracekit says of the traces of the slow scripts, and beside it what their mends gained.

    python benchmarks/cases/diagnose.py benchmarks/cases/h100          # before anything is measured
    python benchmarks/cases/diagnose.py benchmarks/cases/h100 --page   # rows of docs/diagnosis.md

The first writes FOLDER/diagnosis.json from the traces FOLDER/CASE.json.gz; the second joins it with what was measured,
FOLDER/measured.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from catalogue import cases

import tracekit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if asked.page:
        print(page(asked.folder))
        return
    rows = {case.name: diagnosis(asked.folder / f"{case.name}.json.gz", case.projected_to) for case in cases().values()}
    (asked.folder / "diagnosis.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def diagnosis(trace: Path, projected_to: tuple[str, ...]) -> dict[str, Any]:
    """Bound, steps, advice in order with its interval, and which GPUs the run does not fit."""
    analysis = tracekit.analyze(trace, use_cache=False)
    misfits = [gpu for gpu in projected_to if "does-not-fit" in set(tracekit.analyze(trace, gpu).problems.code)]
    return {
        "bound": analysis.bound.ranked()[0][0],
        "steps": len(analysis.steps),
        "advice": [
            {"id": each.id, "low": each.speedup.low, "expected": each.speedup.expected, "high": each.speedup.high}
            for each in analysis.recommendations
        ],
        "does_not_fit": misfits,
    }


def page(folder: Path) -> str:
    diagnosed = json.loads((folder / "diagnosis.json").read_text("utf-8"))
    measured = json.loads((folder / "measured.json").read_text("utf-8"))["cases"]
    head = [
        "| case | bound | first advice | predicted | the mend gained | right | inside |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = [_row(name, case.advice, diagnosed[name], measured[name]) for name, case in cases().items()]
    return "\n".join([*head, *rows])


def _row(name: str, right: tuple[str, ...], diagnosed: dict[str, Any], measured: dict[str, Any]) -> str:
    gain = measured["gain"]["median"]
    first = diagnosed["advice"][0] if diagnosed["advice"] else None
    if first is None:
        return f"| {name} | {diagnosed['bound']} | none | | {gain:.2f}× | no | |"
    is_right = first["id"] in right or (bool(diagnosed["does_not_fit"]) and "gradient-checkpointing" in right)
    inside = first["low"] <= gain <= first["high"] if first["id"] in right else None
    verdict = {True: "yes", False: "no", None: ""}
    predicted = f"{first['low']:.2f} to {first['high']:.2f}×"
    return (
        f"| {name} | {diagnosed['bound']} | `{first['id']}` | {predicted} | {gain:.2f}× | {verdict[is_right]} "
        f"| {verdict[inside]} |"
    )


if __name__ == "__main__":
    main()
