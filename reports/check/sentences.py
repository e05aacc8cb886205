"""Writes changes as sentences."""

from collections.abc import Mapping, Sequence

from tracekit.analyzers.check import BudgetLine, Check, CounterChange, Culprit, Ratio, RunTimes, TimeChange, Values
from tracekit.reports.words import duration, printable, quantity
from tracekit.reports.words import shortened as name_shortened

OUTCOMES = {
    "pass": "passed",
    "improved": "improved",
    "regressed": "regressed",
    "inconclusive": "inconclusive",
}
_BYTES = ("bytes", "copied-bytes", "peak-memory")
_NAME = 72


def verdict_sentence(check: Check) -> str:
    """Return the verdict in one line: "regressed: runs/head against main: a step takes 1.05× (1.03 to 1.07)."."""
    against = f" against {check.baseline}" if check.baseline else " against its budget"
    return printable(f"{OUTCOMES[check.outcome]}: {check.run}{against}: {_reason(check)}.")


def _reason(check: Check) -> str:
    latency = check.latency
    sentences = [f"a step takes {ratio_text(latency.ratio)} as long"] if latency else []
    worse = [change for change in check.counters if change.decides and change.outcome == "regressed"]
    better = [change for change in check.counters if change.decides and change.outcome == "improved"]
    if worse:
        sentences.append(", ".join(counter_change(change) for change in worse))
    elif check.counters:
        sentences.append(
            "counters fell: " + ", ".join(counter_change(change) for change in better)
            if better
            else "counters are the same"
        )
    parts = [change for change in check.slower if change.kind != "latency"]
    if parts:
        sentences.append(time_said(parts[0]) + (f" (and {len(parts) - 1} more)" if len(parts) > 1 else ""))
    over = [line for line in check.budgets if line.outcome == "regressed"]
    if over:
        sentences.append("over budget: " + ", ".join(budget_change(line) for line in over))
    elif check.budgets and not check.baseline:
        sentences.append("budgets are " + ("not decided" if check.outcome == "inconclusive" else "kept"))
    return "; ".join(sentences)


def shortened(name: str) -> str:
    """Return a name in at most 72 printable characters."""
    return name_shortened(printable(name), _NAME)


def time_change(change: TimeChange) -> str:
    """Return "4.10 ms → 4.22 ms (1.03×, 1.02 to 1.04)"."""
    ends = f"{duration(change.before_ns / 1e3)} → {duration(change.after_ns / 1e3)}"
    return f"{ends} ({ratio_text(change.ratio)})"


def time_said(change: TimeChange) -> str:
    """Return "layer h.3.mlp takes 1.10 ms → 1.13 ms (1.03×, 1.02 to 1.04)"."""
    what = "a step" if change.kind == "latency" else f"{change.kind} {shortened(change.name)}"
    return f"{what} takes {time_change(change)}"


def ratio_text(ratio: Ratio) -> str:
    """Return "1.031× (1.022 to 1.040)"; without the interval, if there is no noise."""
    if ratio.low == ratio.high:
        return f"{ratio.value:.3f}×"
    if not ratio.high < 1e3:
        return f"{ratio.value:.3f}× (any ratio is possible)"
    return f"{ratio.value:.3f}× ({ratio.low:.3f} to {ratio.high:.3f})"


def counter_change(change: CounterChange) -> str:
    """Return "launches 235 → 247"."""
    before, after = (counted(change.name, value) for value in (change.before, change.after))
    if before == after and change.before != change.after:  # rounded, they look the same
        before, after = (f"{value:,.0f}" for value in (change.before, change.after))
    return f"{change.name} {before} → {after}"


def counted(name: str, value: float) -> str:
    """Return the value of a counter with its unit, as exactly as it is known."""
    if name == "flops":
        return quantity(value, "FLOP")
    if name in _BYTES:
        return quantity(value, "B")
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def budget_change(line: BudgetLine) -> str:
    """Return "latency 5.20 ms of 5.00 ms"."""
    if line.unit == "ns":
        return f"{shortened(line.name)} {duration(line.value / 1e3)} of {duration(line.most / 1e3)}"
    return f"{line.name} {counted(line.name, line.value)} of {counted(line.name, line.most)}"


def culprit_text(culprit: Culprit) -> str:
    """Return where a regression comes from: "layer h.3.mlp, aten::addmm, model.py:12 (forward)"."""
    where = [
        f"layer {shortened(culprit.layer)}" if culprit.layer and culprit.layer not in culprit.what else "",
        shortened(culprit.op) if culprit.op and culprit.op not in culprit.what else "",
        f"{culprit.location} ({shortened(culprit.function)})" if culprit.location else "",
    ]
    place = ", ".join(printable(part) for part in where if part)
    if culprit.cause:
        place = "; ".join(part for part in (printable(culprit.cause), place) if part)
    return place


def described(name: str, saved: str, commit: str, fingerprint: Mapping[str, str | int]) -> str:
    """Return a baseline in one line."""
    words = [
        str(fingerprint[key]) for key in ("kind", "device", "gpu", "model", "workload", "dtype") if key in fingerprint
    ]
    return printable(f"{name}  {saved[:10]}  {commit or '-'}  {' '.join(words)}") + "\n"


def fully_described(fingerprint: Mapping[str, str | int], counters: Values, runs: Sequence[RunTimes]) -> str:
    """Return the fingerprint, the times and the counters of a baseline."""
    lines = [f"  {name.replace('_', ' ')}: {printable(str(value))}" for name, value in fingerprint.items()]
    lines += ["", *(f"  run {number}: {_run(run)}" for number, run in enumerate(runs, 1)), ""]
    return "\n".join([*lines, *(f"  {name}: {_values(name, values)}" for name, values in counters.items())]) + "\n"


def _run(run: RunTimes) -> str:
    times = sorted(run.steps_ns)
    steps = f"{len(times)} step{'s' * (len(times) != 1)} of {duration(times[len(times) // 2] / 1e3)} in the trace"
    return f"{duration(run.unprofiled.median_us)} per step; {steps}" if run.unprofiled else steps


def _values(name: str, values: tuple[float, ...]) -> str:
    texts = [counted(name, value) for value in (values[0], values[-1])]
    return texts[0] if values[0] == values[-1] else f"{texts[0]} to {texts[1]}, differs between steps"
