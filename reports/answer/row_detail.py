"""One row of an analysis in full, by its id, with the ids of the rows around it."""

from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.core import UnknownNameError
from tracekit.analyzers.results import Analysis
from tracekit.reports.answer import advice_export
from tracekit.reports.answer.brief import NAMED, UNTRUSTED, ids, row_id
from tracekit.reports.words import number, plain_rows, public

_MOST = 12
_NEAR = 3


def row_detail(analysis: Analysis, wanted: str) -> dict[str, Any]:
    """Return the row of an id. Raises UnknownNameError, with the nearest ids, if there is none."""
    kind, _, name = wanted.partition(":")
    if kind in NAMED and (rows := _rows(analysis, kind, wanted)):
        return {"id": wanted, **_named(analysis, kind, rows), "untrusted": UNTRUSTED}
    if kind == "advice":
        for each in analysis.recommendations:
            if each.id == name:
                return {**advice_export.recommendation(each), "id": wanted, "recommended": True, "untrusted": UNTRUSTED}
        for option in analysis.considered:
            if option.id == name:
                return {**advice_export.considered(option), "id": wanted, "untrusted": UNTRUSTED}
    if kind == "counter" and (analysis.counts["counter"] == name).any():
        return {"id": wanted, **_counter(analysis, name), "untrusted": UNTRUSTED}
    if kind == "step" and name.isdigit() and int(name) in set(analysis.timeline.steps["step"]):
        return {"id": wanted, **_step(analysis, int(name)), "untrusted": UNTRUSTED}
    raise _unknown(analysis, wanted)


def _unknown(analysis: Analysis, wanted: str) -> UnknownNameError:
    near = get_close_matches(wanted, list(dict.fromkeys(ids(analysis))), n=_NEAR, cutoff=0.5)
    kinds = ", ".join(f"{kind}:…" for kind in (*NAMED, "counter", "advice", "step"))
    hint = f"The nearest are {', '.join(near)}." if near else "tracekit analyze RUN --brief lists ids."
    return UnknownNameError(f"The analysis has no row {wanted!r}.", f"Ids are {kinds}.", hint)


def _rows(analysis: Analysis, kind: str, wanted: str) -> list[int]:
    table, column = NAMED[kind]
    return [at for at, name in enumerate(getattr(analysis, table)[column]) if row_id(kind, str(name)) == wanted]


def _named(analysis: Analysis, kind: str, rows: list[int]) -> dict[str, Any]:
    table = NAMED[kind][0]
    row = plain_rows(public(getattr(analysis, table).iloc[rows[:1]]))[0]
    return {
        "row": {**row, "parent": _parent(analysis, row)} if kind == "layer" else row,
        **_related_rows(analysis, kind, rows),
    }


def _parent(analysis: Analysis, row: dict[str, Any]) -> str | None:
    parent = row["parent"]
    return None if parent is None else row_id("layer", str(analysis.layers["path"].iloc[parent]))


def _related_rows(analysis: Analysis, kind: str, rows: list[int]) -> dict[str, Any]:
    """Return the rows related to a row: the children, ops and kernels of a layer, the layers and kernels of an op, and
    so on."""
    work, layers = analysis.work, analysis.layers
    if kind == "cause":
        cause = analysis.idle_causes["cause"].iloc[rows[0]]
        host = analysis.host_causes[analysis.host_causes["cause"] == cause]
        sums = host.groupby(["name", "location", "caller"], sort=False)["idle_ns"].sum().nlargest(_MOST).reset_index()
        return {"host": plain_rows(public(sums))}
    if kind == "layer":
        children = layers.index[layers["parent"] == rows[0]]
        inside = work[work["layer"].isin(rows)]
        below = [row_id("layer", str(layers["path"].iloc[child])) for child in children]
        return {"children": below, **_time_by(inside, layers, ("op", "kernel"))}
    if kind in ("op", "kernel"):
        column, name = ("op_name", "ops") if kind == "op" else ("name", "kernels")
        inside = work[work[column].astype(object) == getattr(analysis, name)["name"].iloc[rows[0]]]
        return _time_by(inside, layers, ("layer", "kernel" if kind == "op" else "op"))
    return {}


def _time_by(work: pd.DataFrame, layers: pd.DataFrame, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Return the busy time of the work by layer, op or kernel, largest first."""
    paths = np.append(layers["path"].to_numpy(dtype=object), "")
    keys = {
        "layer": paths[work["layer"].to_numpy()],
        "op": work["op_name"].astype(object).to_numpy(),
        "kernel": work["name"].astype(object).to_numpy(),
    }
    fields: dict[str, Any] = {}
    for kind in kinds:
        sums = work["busy_ns"].groupby(keys[kind]).sum().nlargest(_MOST)
        fields[f"{kind}s"] = [
            {"id": row_id(kind, str(name)), "busy_us": number(ns / 1e3, 3)} for name, ns in sums.items() if name
        ]
    return fields


def _counter(analysis: Analysis, name: str) -> dict[str, Any]:
    counts, places = analysis.counts, analysis.places
    values = counts.loc[counts["counter"] == name, "value"].tolist()
    return {"a_step": values, "places": plain_rows(public(places[places["counter"] == name].head(_MOST)))}


def _step(analysis: Analysis, step: int) -> dict[str, Any]:
    steps, counts, causes = analysis.timeline.steps, analysis.counts, analysis.host_causes
    of_step = counts[counts["step"] == step]
    return {
        "row": plain_rows(public(steps[steps["step"] == step]))[0],
        "counters": dict(zip(of_step["counter"], of_step["value"].tolist(), strict=True)),
        "host": plain_rows(public(causes[causes["step"] == step].head(_MOST))),
    }
