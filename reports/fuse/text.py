"""The plan of fused kernels, and the results of writing them, as text."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from tracekit.analyzers.cost import GPU
from tracekit.analyzers.fuse import Planned
from tracekit.analyzers.results import say
from tracekit.reports.words import duration, percent, printable, sentence


def plan_text(rows: Sequence[Planned], gpu: GPU, *, measured: bool = False) -> str:
    """Return the plan with one line per row. `measured`: the times before are those of a trace."""
    if not rows:
        return "Nothing can be fused: the step has no consecutive ops that one kernel could compute.\n"
    times = "times before are measured, those after predicted" if measured else "times are modelled"
    lines = [f"Fused kernels of one step on the {gpu.name}, those that save most first ({times}):", ""]
    for number, row in enumerate(rows, 1):
        after = row.after_ns
        kernel = row.template or "no template"
        lines.append(
            f"{number:3d}.  {printable(row.pattern)}, {row.groups} × {printable(row.layer) or 'the model'}  ({kernel})"
        )
        lines.append(
            f"      {duration(row.before_ns / 1e3)} → {duration(after.expected / 1e3)} "
            f"({duration(after.low / 1e3)} to {duration(after.high / 1e3)}); {row.each.launches_before * row.groups} → "
            f"{row.each.launches_after * row.groups} launches"
        )
        lines.append(f"      {printable(row.inputs)} → {printable(row.outputs)}")
        if row.elsewhere:
            lines.append(f"      elsewhere: {row.elsewhere}")
    return "\n".join(lines) + "\n"


def launch_order_text(plan: pd.DataFrame) -> str:
    """Return the plan of a trace without a graph, one line per row, and its limits."""
    if plan.empty:
        return "Nothing can be fused: the trace has no consecutive ops that one kernel could compute.\n"
    lines = ["Consecutive ops of similar sizes, which one kernel may replace:", ""]
    for row in plan.to_dict("records"):
        where = printable(row["layer"]) or "the model"
        lines.append(f"{row['number']:3d}.  {row['pattern']}, {row['groups']} × {where}: {printable(row['ops'])}")
        before, after = (duration(row[f"{name}_ns"] / 1e3) for name in ("before", "after"))
        lines.append(f"      {before} → {after} in a step, modelled")
    return "\n".join([*lines, "", *textwrap.wrap(sentence(say("fusion-guessed")), 100)]) + "\n"


def results_text(results: Iterable[Any]) -> str:
    """Return the result of each row: written and checked, timed, or the reason why not."""
    lines = []
    for each in results:
        name = f"{each.number:3d}.  {printable(each.planned.pattern)}"
        if each.why:
            lines.append(f"{name}: not written, {printable(each.why)}.")
            continue
        times = ""
        if each.timed:
            before, after = duration(each.timed.before_ns / 1e3), duration(each.timed.after_ns / 1e3)
            compiled = f"; torch.compile {duration(each.timed.compiled_ns / 1e3)}" if each.timed.compiled_ns else ""
            roof = f", {percent(each.timed.roof_fraction)} of the roof" if each.timed.roof_fraction else ""
            times = f", {before} → {after} measured{roof}{compiled}"
        proved = f"not proved here: {each.unproved}" if each.unproved else f"{each.checks} comparisons passed"
        lines.append(f"{name}: {each.path.name}, {proved}{times}.")
    return "\n".join(lines) + "\n"
