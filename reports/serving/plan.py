"""A serving plan as a sentence, as text, CSV and JSON, and as a page."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tracekit.analyzers.core import Interval
from tracekit.analyzers.serving import PARTS, SERVE_PLAN, Measures, ServePlan, Setting
from tracekit.reports.words import (
    ABSENT,
    asset,
    csv_cell,
    duration,
    environment,
    json_text,
    paragraph,
    percent,
    printable,
    printed,
    significant,
)

MODELLED = "MODELLED: passes are predicted, and the engine is simulated; nothing was measured."
HEAD = ("setting", "tokens/s", "a GPU", "first token", "p99", "per token", "p99", "KV max", "in flight", "put off")
_WIDTH, _HEIGHT, _LEFT, _BASE = 300, 120, 40, 100
_MOST_BEST = 8
_HALF = 0.5
_WORTH = 0.95
"""Part of the time between tokens above which a change is not proposed."""


def to_text(plan: ServePlan, *, width: int | None = None) -> str:
    """Return the answer, and a table of the settings beside it."""
    return printed(lambda columns: _text(plan, columns), width=width, colour=False)


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
        "basis": MODELLED,
        "question": question,
        "answer": answer(plan),
        "rows": [_record(plan.asked)],
        "ladder": [_record(each) for each in plan.ladder],
        "changes": [_record(each) for each in plan.changes],
        "search": [{**_record(each), "best": best} for each, best in zip(plan.searched, plan.best, strict=True)],
    }
    return json_text(values)


def _record(setting: Setting) -> dict[str, Any]:
    found = setting.found
    row: dict[str, Any] = {"setting": setting.name, "gpus": setting.deployment.gpus, "problem": setting.problem}
    if found is None:
        return row
    for name in ("ttft_ms", "tpot_ms", "tokens_per_s", "prefill_ms"):
        interval = getattr(found, name)
        if isinstance(interval, Interval):
            row[name] = {end: _finite(value) for end, value in vars(interval).items()}
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
    users = f" at {plan.requests.users:,} users" if plan.requests.users else ""
    rate = _with_ends(found.tokens_per_s)
    head = f"{printable(of.model.name)} in {of.format.dtype} on {gpus}, {of.engine.title}: {rate} tokens/s{users}"
    yield f"{head}, first token after {_ms(found.ttft_ms.expected)}, {_ms(found.tpot_ms.expected)} between tokens."
    (part, share), *_ = found.parts.items()
    yield f"{PARTS.get(part, part).capitalize()} takes {percent(share)} of the time."
    if found.prefill_ms:
        yield f"Every request has its first token after {_ms(found.prefill_ms.expected)}."
    if plan.asked.row["refused"]:
        yield f"{plan.asked.row['refused']:,} requests need more than the whole KV cache and are refused."
    yield from _limits(plan, found)
    if asked.price is not None:
        yield f"A million output tokens cost {significant(float(str(plan.asked.row['cost_per_million'])))}."
    yield f"{_halved(plan, found)}"


def _limits(plan: ServePlan, found: Measures) -> Iterator[str]:
    """Yield what the limits leave, and if some requests break them, the nearest setting that keeps them."""
    if not plan.question.slo:
        return
    kept = f"{percent(found.kept)} of the requests keep the limits: {significant(found.goodput_per_s)} a second."
    yield kept
    if found.kept >= _KEPT:
        return
    others = [each for each in (*plan.changes, *plan.searched) if each.found and each.found.kept >= _KEPT]
    if others:
        nearest = min(others, key=lambda each: each.deployment.gpus)
        yield f"The nearest setting that keeps them: {nearest.name}."
    else:
        best = max((each for each in (*plan.changes, plan.asked, *plan.searched) if each.found), key=_kept)
        yield f"No setting here keeps them; the nearest is {best.name}, for {percent(_kept(best))} of the requests."


_KEPT = 0.99


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
    return f"{_rate(value.expected)} ({_rate(value.low)} to {_rate(value.high)})"


def _rate(value: float) -> str:
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else significant(value)


def _ms(value: float) -> str:
    return duration(1e3 * value) if value == value else ABSENT


def _text(plan: ServePlan, width: int) -> RenderableType:
    parts: list[RenderableType] = [paragraph(answer(plan), width)]
    for title, rows in _groups(plan):
        view = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
        for rank, name in enumerate(HEAD):
            view.add_column(name, justify="right" if rank else "left", overflow="fold")
        for row in rows:
            view.add_row(*_cells(row))
        parts.append(view)
    return Group(*parts, *(paragraph(line, width) for line in _remarks(plan)), Text(MODELLED))


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


def _cells(setting: Setting) -> list[str]:
    row, found = setting.row, setting.found
    if found is None:
        return [printable(setting.name), *[ABSENT] * (len(HEAD) - 1)]
    return [
        printable(setting.name),
        _rate(found.tokens_per_s.expected),
        _rate(found.tokens_per_s.expected / setting.deployment.gpus),
        *(_ms(each) for each in (found.ttft_ms.expected, found.ttft_p99_ms, found.tpot_ms.expected, found.tbt_p99_ms)),
        percent(float(str(row["kv_max"]))),
        f"{row['running_max']:,}",
        f"{row['put_off']:,}",
    ]


def _remarks(plan: ServePlan) -> list[str]:
    known = {each.name: each.problem for each in (plan.asked, *plan.ladder, *plan.changes)}
    return [f"{printable(name)}: {problem}" for name, problem in known.items() if problem]


def to_html(plan: ServePlan) -> str:
    """Return one self-contained page."""
    of = plan.asked.deployment
    values: dict[str, Any] = {
        "title": printable(f"{of.model.name} on {of.gpu.name}, {plan.question.requests}"),
        "answer": answer(plan),
        "modelled": MODELLED,
        "head": HEAD,
        "meanings": [(column.name, column.meaning) for column in SERVE_PLAN.columns],
        "groups": [(title, [_cells(row) for row in rows]) for title, rows in _groups(plan)],
        "remarks": _remarks(plan),
        "parts": _shares(plan.asked.found),
        "panel": _panel(plan.over_time) if len(plan.over_time) else "",
        "pareto": _pareto(plan) if any(each.found for each in plan.searched) else "",
        "style": asset("tokens.css") + asset("bench.css") + asset("sweep.css"),
    }
    return environment().get_template("serve_plan.html.j2").render(**values)


def _shares(found: Measures | None) -> list[tuple[str, str]]:
    parts: Mapping[str, float] = found.parts if found else {}
    return [(PARTS.get(name, name), percent(share)) for name, share in parts.items() if share > 0]


def _panel(run: pd.DataFrame) -> str:
    """Return a panel of KV cache use and waiting requests over time, each with its own scale."""
    end, most = max(float(run["time_s"].iloc[-1]), 1e-9), max(int(run["waiting"].max()), 1)
    full = max(float(run["used"].max()), 1e-9)
    lines = [
        f'<polyline class="{line}" points="{_points(run["time_s"] / end, values)}"/>'
        for line, values in (("line-1", run["used"] / full), ("line-2", run["waiting"] / most))
    ]
    label = f"KV cache (blue), up to {most:,} waiting (red)"
    return _figure("KV cache over time", "".join(lines), percent(full), duration(1e6 * end), label)


def _pareto(plan: ServePlan) -> str:
    """Return the searched settings: tokens per second of a GPU over the time between tokens."""
    found = [(each, best) for each, best in zip(plan.searched, plan.best, strict=True) if each.found]
    x = [_per_token(each) for each, _ in found]
    y = [each.found.tokens_per_s.expected / each.deployment.gpus for each, _ in found if each.found]
    across, up = max(x), max(y)
    marks = [
        f'<circle class="{"line-1" if best else "line-2"}" r="{3 if best else 1.5}" '
        f'cx="{_LEFT + (_WIDTH - _LEFT) * a / across:.1f}" cy="{_BASE - (_BASE - 24) * b / up:.1f}">'
        f"<title>{escape(each.name)}</title></circle>"
        for (each, best), a, b in zip(found, x, y, strict=True)
    ]
    label = "tokens/s of a GPU over time between tokens; large: nothing is better in both"
    return _figure("Settings", "".join(marks), _rate(up), _ms(across), label)


def _figure(name: str, drawn: str, top: str, right: str, label: str) -> str:
    axes = (
        f'<path class="axis" d="M{_LEFT} 8V{_BASE}H{_WIDTH}"/>'
        f'<text class="label" x="{_LEFT - 4}" y="14">{escape(top)}</text>'
        f'<text class="label" x="{_WIDTH}" y="{_BASE + 12}">{escape(right)}</text>'
        f'<text x="{_LEFT + 6}" y="14">{escape(label)}</text>'
    )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(name)}">{drawn}{axes}</svg>'


def _points(x: Any, y: Any) -> str:
    step = max(1, len(x) // 300)
    pairs = zip(x[::step], y[::step], strict=True)
    return " ".join(f"{_LEFT + (_WIDTH - _LEFT) * a:.1f},{_BASE - (_BASE - 24) * b:.1f}" for a, b in pairs)
