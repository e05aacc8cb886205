"""A serving plan as a sentence, as a document, and as CSV and JSON."""

from collections.abc import Iterator
from typing import Any

from msgspec import structs

from tracekit.analyzers.core import Interval
from tracekit.analyzers.serving import PARTS, SERVE_PLAN, Measures, ServePlan, Setting, counted_users, keeps
from tracekit.reports.document import Document, Drawn, Listing, Section, Table, Text
from tracekit.reports.serving import passes
from tracekit.reports.serving.figures import panel, pareto, rounded
from tracekit.reports.words import (
    ABSENT,
    csv_cell,
    duration,
    json_text,
    percent,
    printable,
    significant,
)

MODELLED = "MODELLED: passes are predicted, and the engine is simulated; nothing was measured."
FITTED = "MODELLED: passes are predicted by a model that is fitted to the trace, and the engine is simulated."
_HEAD = (
    *("setting", ">tokens/s", ">a GPU", ">first token", ">p99", ">per token", ">p99"),
    *(">KV max", ">in flight", ">put off"),
)
_MOST_BEST = 8
_TOKENS, _JOULES = 1e6, 3.6e6
"""Tokens of a price; joules of a kilowatt-hour."""
_HALF = 0.5
_WORTH = 0.95
"""Part of the time between tokens above which a change is not proposed."""


def serving_document(plan: ServePlan) -> Document:
    """Return the answer, the settings beside it, and where the time goes."""
    of, found = plan.asked.deployment, plan.asked.found
    figures = [
        {"title": title, "svg": svg}
        for title, svg in (
            ("The KV cache over time", panel(plan.over_time) if len(plan.over_time) else ""),
            ("The settings of the search", pareto(plan) if any(each.found for each in plan.searched) else ""),
        )
        if svg
    ]
    parts = (
        [f"{PARTS.get(name, name)}: {percent(share)}" for name, share in found.parts.items() if share > 0]
        if found
        else []
    )
    meanings = [f"{column.name}: {column.meaning}" for column in SERVE_PLAN.columns]
    blocks = [
        Text(answer(plan), "headline"),
        *(Section(title, [table]) for title, table in _tables(plan)),
        Listing(_remarks(plan)),
        Text(_basis(plan), "badge modelled"),
        Section(
            "What the time is spent on",
            [Drawn("list", parts), Drawn("figures", {"kind": "facets", "figures": figures})],
        ),
        Section("Columns of serve_plan.csv", [Drawn("list", meanings)], folded=True),
    ]
    title = f"Serving plan of {of.model.name} on {of.gpu.name}, {plan.question.requests}"
    return Document(title, blocks, "serving", ("bench", "sweep"))


def to_csv(plan: ServePlan) -> str:
    """Return SERVE_PLAN with a header row."""
    table = plan.table
    safe = table.assign(**{name: table[name].map(csv_cell) for name in ("setting", "problem")})
    return safe.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def to_json(plan: ServePlan) -> str:
    """Return `rows` (the setting that was asked for), the answer, and the settings beside it."""
    asked = plan.question
    question = {name: value for name, value in vars(asked).items() if value not in (None, False)}
    values = {
        "kind": "serve-plan",
        "basis": _basis(plan),
        "question": question,
        "answer": answer(plan),
        "rows": [_record(plan.asked)],
        "ladder": [_record(each) for each in plan.ladder],
        "changes": [_record(each) for each in plan.changes],
        "search": [{**_record(each), "best": best} for each, best in zip(plan.searched, plan.best, strict=True)],
    }
    return json_text(values | ({"trace": passes.record(plan.comparison)} if plan.comparison else {}))


def _basis(plan: ServePlan) -> str:
    return FITTED if plan.comparison else MODELLED


def _record(setting: Setting) -> dict[str, Any]:
    found = setting.found
    row: dict[str, Any] = {"setting": setting.name, "gpus": setting.deployment.gpus, "problem": setting.problem}
    if found is None:
        return row
    for name in ("ttft_ms", "tpot_ms", "tokens_per_s", "prefill_ms"):
        interval = getattr(found, name)
        if isinstance(interval, Interval):
            row[name] = {end: _finite(value) for end, value in structs.asdict(interval).items()}
    kept = ("ttft_p99_ms", "tbt_p99_ms", "goodput_per_s", "kv_mean", "kv_max", "running_max", "put_off", "refused")
    row |= {name: _finite(setting.row[name]) for name in (*kept, "cost_per_million", "joules_per_token", "kv_tokens")}
    return row | {"parts": dict(found.parts)}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def answer(plan: ServePlan) -> str:
    """Return the answer in a few sentences."""
    return " ".join(filter(None, _sentences(plan, plan.asked.found))) if plan.asked.found else plan.asked.problem


def _sentences(plan: ServePlan, found: Measures) -> Iterator[str]:
    of, asked = plan.asked.deployment, plan.question
    gpus = f"one {of.gpu.name}" if of.gpus == 1 else f"{of.gpus} {of.gpu.name}"
    users = f" at {counted_users(plan.requests.users)}" if plan.requests.users else ""
    rate = _with_ends(found.tokens_per_s)
    head = f"{printable(of.model.name)} in {of.format.dtype} on {gpus}, {of.engine.title}: {rate} tokens/s{users}"
    yield f"{head}, first token after {_ms(found.ttft_ms.expected)}, {_ms(found.tpot_ms.expected)} between tokens."
    if plan.comparison:
        yield passes.sentence(plan.comparison)
    (part, share), *_ = found.parts.items()
    yield f"{PARTS.get(part, part).capitalize()} takes {percent(share)} of the time."
    if found.prefill_ms:
        yield f"Every request has its first token after {_ms(found.prefill_ms.expected)}."
    if plan.asked.row["refused"]:
        yield f"{plan.asked.row['refused']:,} requests need more than the whole KV cache and are refused."
    yield from _limits(plan, found)
    joules = significant(found.joules_per_token * _TOKENS / _JOULES)
    cost = "" if asked.price is None else f"cost {significant(float(str(plan.asked.row['cost_per_million'])))} and "
    yield f"A million output tokens {cost}take {joules} kWh."
    yield f"{_halved(plan, found)}"


def _limits(plan: ServePlan, found: Measures) -> Iterator[str]:
    """Yield what the limits leave, and if some requests break them, the nearest setting that keeps them."""
    if not plan.question.slo:
        return
    kept = f"{percent(found.kept)} of the requests keep the limits: {significant(found.goodput_per_s)} a second."
    yield kept
    if keeps(plan.asked):
        return
    others = [each for each in (*plan.changes, *plan.searched) if keeps(each)]
    if others:
        nearest = min(others, key=lambda each: each.deployment.gpus)
        yield f"The nearest setting that keeps them: {nearest.name}."
    else:
        best = max((each for each in (*plan.changes, plan.asked, *plan.searched) if each.found), key=_kept)
        yield f"No setting here keeps them; the nearest is {best.name}, for {percent(_kept(best))} of the requests."


def _kept(setting: Setting) -> float:
    return setting.found.kept if setting.found else 0.0


def _halved(plan: ServePlan, found: Measures) -> str:
    """Return what halves the time between tokens, or comes nearest."""
    others = [each for each in plan.changes if each.found]
    if not others:
        return ""
    ratios = {each.name: each.found.tpot_ms.expected / found.tpot_ms.expected for each in others if each.found}
    enough = [name for name, ratio in ratios.items() if ratio <= _HALF]
    name = enough[0] if enough else min(ratios, key=lambda name: ratios[name])
    if ratios[name] > _WORTH:
        return ""
    return f"To {'halve' if enough else 'lower'} the time between tokens: {name} ({significant(ratios[name])} of it)."


def _with_ends(value: Interval) -> str:
    return f"{rounded(value.expected)} ({rounded(value.low)} to {rounded(value.high)})"


def _ms(value: float) -> str:
    return duration(1e3 * value) if value == value else ABSENT


def _tables(plan: ServePlan) -> Iterator[tuple[str, Table]]:
    """Yield the title of each table, and the table."""
    if plan.comparison:
        yield "Passes of the trace", passes.table(plan.comparison)
    for title, rows in _groups(plan):
        yield title, Table(_HEAD, [_cells(row) for row in rows])


def _groups(plan: ServePlan) -> Iterator[tuple[str, list[Setting]]]:
    """Yield the tables: what was asked, step by step to it, one thing changed, and the best of the search."""
    yield "As asked", [plan.asked]
    yield "Each step on top of those before it", list(plan.ladder)
    if plan.changes:
        yield "One thing changed", list(plan.changes)
    best = [each for each, best in zip(plan.searched, plan.best, strict=True) if best and each.found]
    if best:
        yield f"The best of {len(plan.searched)} settings", sorted(best, key=_per_token)[:_MOST_BEST]


def _per_token(setting: Setting) -> float:
    return setting.found.tpot_ms.expected if setting.found else float("inf")


def _cells(setting: Setting) -> tuple[str, ...]:
    row, found = setting.row, setting.found
    if found is None:
        return (printable(setting.name), *[ABSENT] * (len(_HEAD) - 1))
    return (
        printable(setting.name),
        rounded(found.tokens_per_s.expected),
        rounded(found.tokens_per_s.expected / setting.deployment.gpus),
        *(_ms(each) for each in (found.ttft_ms.expected, found.ttft_p99_ms, found.tpot_ms.expected, found.tbt_p99_ms)),
        percent(float(str(row["kv_max"]))),
        f"{row['running_max']:,}",
        f"{row['put_off']:,}",
    )


def _remarks(plan: ServePlan) -> list[str]:
    known = {each.name: each.problem for each in (plan.asked, *plan.ladder, *plan.changes)}
    return [f"{printable(name)}: {problem}" for name, problem in known.items() if problem]
