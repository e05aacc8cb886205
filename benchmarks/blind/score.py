"""Compares a round's predictions with its measurements, as Markdown.

    python -m benchmarks blind.score ROUND... [-o FILE]

ROUND holds plan.json and, of each machine, a folder with predictions.csv and measured.json.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.blind.joined import Row, advised, joined, rounds

EVIDENCE = {
    "capture": "from captures (ranges, batch and unprofiled latency known)",
    "beside": "from captures, with the latency of the unmodified run when it was measured",
    "trace": "from plain traces alone",
}
_WORST = 5
_MOST_CHANGED = 8
_AS_FAST = 0.2
"""A run takes as long as before if its latency changed by less."""
_HEAD = ("rows", "mean error", "median error", "sign right", "inside", "median width")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, help="by default standard output")
    asked = parser.parse_args()
    text = "\n".join(scored(joined(each)) for each in asked.rounds)
    if asked.output:
        asked.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def brief(last: int) -> str:
    """Return a table of the last published rounds and of all, of the predictions from captures."""
    head = ("round", "GPU", "rows", "median error", "inside the interval", "median width")
    named = list(rounds().items())
    every = [row for _, rows in named for row in rows]
    return _table(head, [_briefly(*each) for each in (*named[-last:], ("all", every))], numbers=4)


def _briefly(name: str, rows: list[Row]) -> tuple[str, ...]:
    compared = [row for row in rows if row.compared and row.evidence == "capture"]
    count, _, median, _, inside, width = _summary(compared)
    machines = sorted({row.machine.upper().partition("-")[0] for row in compared})
    return (name, ", ".join(machines), count, median, inside, width)


def scored(rows: list[Row]) -> str:
    parts = [_part(title, [row for row in rows if row.evidence == name]) for name, title in EVIDENCE.items()]
    return "\n".join(part for part in parts if part)


def _part(title: str, rows: list[Row]) -> str:
    if not rows:
        return ""
    compared = [row for row in rows if row.compared]
    sections = [f"### Predictions {title}\n", _counted(rows)]
    if compared:
        sections += [
            _table(("machine", *_HEAD), [*_by(compared, lambda row: row.machine), ("all", *_summary(compared))]),
            _table(("optimization", *_HEAD), _by(compared, lambda row: row.kind)),
            _table(("kind of run", *_HEAD), _by(compared, lambda row: row.run.workload)),
            _worst(compared),
            *([_by_change(compared), _of_the_host(compared)] if compared[0].evidence == "capture" else []),
        ]
    return "\n".join([*sections, _not_compared(rows)])


def _counted(rows: list[Row]) -> str:
    refused = sum(row.expected is None and row.measured is not None for row in rows)
    failed = sum(row.measured is None for row in rows)
    agreed = sum(row.expected is None and row.measured is None for row in rows)
    runs = advised(rows)
    return (
        f"{len(rows)} rows: {sum(row.compared for row in rows)} compared, {refused} refused although they could be "
        f"measured, {failed} not measured ({agreed} of them also refused). The recommended row with the largest "
        f"expected gain of a run is the best measured one in {_share_of(one.ranked for one in runs)}; the first "
        f"advice, if it was measured, in {_share_of(one.first for one in runs)}.\n"
    )


def _share_of(verdicts: Iterable[bool | None]) -> str:
    judged = [verdict for verdict in verdicts if verdict is not None]
    return f"{sum(judged)} of {len(judged)} runs"


def _by(rows: list[Row], key: Callable[[Row], str]) -> list[tuple[str, ...]]:
    names = sorted({key(row) for row in rows})
    return [(name, *_summary([row for row in rows if key(row) == name])) for name in names]


def _summary(rows: Sequence[Row]) -> tuple[str, ...]:
    errors = [row.error for row in rows]
    return (
        str(len(rows)),
        _percent(statistics.mean(errors)),
        _percent(statistics.median(errors)),
        _percent(statistics.mean(row.right_sign for row in rows)),
        _percent(statistics.mean(row.inside for row in rows)),
        f"{statistics.median(row.width for row in rows):.2f}×",
    )


def _worst(rows: list[Row]) -> str:
    worst = sorted(rows, key=lambda row: row.error, reverse=True)[:_WORST]
    cells = [
        (row.machine, *_names(row), f"{row.measured:.2f}", f"{row.expected:.2f} [{row.low:.2f}, {row.high:.2f}]")
        for row in worst
    ]
    return "The worst five:\n\n" + _table(("machine", "run", "optimization", "measured", "predicted"), cells, numbers=2)


def _by_change(rows: list[Row]) -> str:
    """Return a table by whether the unmodified run's latency was the same when measured as when traced."""

    def change(row: Row) -> str:
        if not row.stated_ms or not row.beside_ms:
            return "unknown"
        return "the same" if abs(row.beside_ms / row.stated_ms - 1) <= _AS_FAST else "different"

    return _CHANGED + "\n" + _table(("latency of the unmodified run", *_HEAD), _by(rows, change))


_CHANGED = """A host's speed changes within minutes. The same: within 20 % of the latency that predictions start from.
"""
_HOST = """The effect of the host: an unmodified step, when the run was traced and later beside the optimization;
and a step with the optimization, predicted and measured (ms). The rows whose run changed most:
"""


def _of_the_host(rows: list[Row]) -> str:
    """Return a table of the runs whose latency changed most between being traced and being measured."""
    changed = [row for row in rows if row.stated_ms and row.beside_ms]
    changed.sort(key=lambda row: abs(math.log((row.stated_ms or 1) / (row.beside_ms or 1))), reverse=True)
    cells = [
        (*_names(row), *(f"{ms:.2f}" for ms in (row.stated_ms, row.beside_ms, row.predicted_ms, row.after_ms) if ms))
        for row in changed[:_MOST_CHANGED]
    ]
    head = (
        "run",
        "optimization",
        "unmodified, traced",
        "unmodified, measured",
        "optimized, predicted",
        "optimized, measured",
    )
    return _HOST + "\n" + _table(head, cells, numbers=4)


def _not_compared(rows: list[Row]) -> str:
    cells = [(row.machine, *_names(row), row.refused, row.failed) for row in rows if not row.compared]
    if not cells:
        return ""
    cells = [tuple(cell.replace("|", "\\|").replace("\n", " ") for cell in line) for line in cells]
    return "Not compared:\n\n" + _table(("machine", "run", "optimization", "refused", "failed"), cells, numbers=0)


def _names(row: Row) -> tuple[str, str]:
    run = row.run
    length = f", {run.length} tokens" if run.length else ""
    return (
        f"{run.model} {run.workload}, batch {run.batch}{length}, {run.dtype} {run.attention}".strip(),
        row.optimization,
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]], numbers: int | None = None) -> str:
    """Return a Markdown table whose last columns, by default all but the first, are right-aligned."""
    right = len(head) - 1 if numbers is None else numbers
    rule = ["---"] * (len(head) - right) + ["---:"] * right
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines)) + "\n"


if __name__ == "__main__":
    sys.exit(main())
