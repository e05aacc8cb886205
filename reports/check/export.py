"""A check as JSON, for other programs."""

from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree as Xml

from tracekit.analyzers.check import BudgetLine, Check, Culprit, Outcome, TimeChange
from tracekit.reports.check.sentences import budget_change, counter_change, culprit_text, time_change, verdict_sentence
from tracekit.reports.words import fields, json_text, number, printable

SCHEMA_VERSION = "1.0"


def to_dict(check: Check) -> dict[str, Any]:
    """Return the check as plain Python values. Times are in microseconds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "outcome": check.outcome,
        "verdict": verdict_sentence(check),
        **fields(check, "run baseline? kind basis counters_only level margin"),
        "culprits": [fields(each, "what? change? layer? op? cause? location? function?") for each in check.culprits],
        "times": [_time(change) for change in check.times],
        "counters": [fields(each, "name before:3 after:3 outcome decides varies") for each in check.counters],
        "budgets": [_budget(line) for line in check.budgets],
        "notes": list(check.notes),
    }


def to_json(check: Check) -> str:
    """Return `to_dict` as JSON text."""
    return json_text(to_dict(check))


def _time(change: TimeChange) -> dict[str, Any]:
    ratio = fields(change.ratio, "low:5 value:5 high:5")
    return {**fields(change, "kind name? before_ns after_ns"), "ratio": ratio, "outcome": change.outcome}


def _budget(line: BudgetLine) -> dict[str, Any]:
    scale = 1e3 if line.unit == "ns" else 1.0
    return {
        "name": line.name,
        "most": number(line.most / scale, 3),
        "value": number(line.value / scale, 3),
        "unit": "µs" if line.unit == "ns" else line.unit,
        "outcome": line.outcome,
    }


def to_junit(check: Check) -> str:
    """Return the XML. A regression that decides the verdict is a failure; an inconclusive result is skipped."""
    cases = [*_cases(check)]
    failed = sum(outcome == "regressed" for _, outcome, _ in cases)
    skipped = sum(outcome == "inconclusive" for _, outcome, _ in cases)
    numbers = {"tests": str(len(cases)), "failures": str(failed), "skipped": str(skipped)}
    suite = Xml.Element("testsuite", {"name": "tracekit check", **numbers})
    properties = Xml.SubElement(suite, "properties")
    Xml.SubElement(properties, "property", {"name": "verdict", "value": printable(verdict_sentence(check))})
    for name, outcome, text in cases:
        case = Xml.SubElement(
            suite, "testcase", {"classname": printable(check.baseline or check.run), "name": printable(name)}
        )
        if outcome in ("regressed", "inconclusive"):
            kind = "failure" if outcome == "regressed" else "skipped"
            Xml.SubElement(case, kind, {"message": printable(text)})
    Xml.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(suite, encoding="unicode") + "\n"


def _cases(check: Check) -> Iterator[tuple[str, Outcome, str]]:
    for change in check.times:
        yield (
            change.kind if change.kind == "latency" else f"{change.kind} {change.name}",
            "pass" if change.outcome == "regressed" and change not in check.slower else change.outcome,
            time_change(change),
        )
    for counter in check.counters:
        if counter.decides:
            yield f"counter {counter.name}", counter.outcome, counter_change(counter)
    for line in check.budgets:
        yield f"budget {line.name}", line.outcome, budget_change(line)


Placed = Callable[[Culprit], tuple[str, int] | None]
"""The file in the repository and the line of a culprit; None: unknown, or not in the repository."""

_LEVEL = {"regressed": "error", "inconclusive": "warning", "pass": "notice", "improved": "notice"}


def annotations(check: Check, placed: Placed) -> str:
    """Return lines for the log of a workflow."""
    lines = [_line(_LEVEL[check.outcome], None, f"tracekit check: {check.outcome}", verdict_sentence(check))]
    for culprit in check.culprits:
        where = culprit_text(culprit)
        text = f"{culprit.change}{f': {where}' if where else ''}"
        lines.append(_line("error", placed(culprit), f"tracekit check: {culprit.what}", text))
    return "\n".join(lines) + "\n"


def _line(level: str, place: tuple[str, int] | None, title: str, message: str) -> str:
    properties = [("file", place[0]), ("line", str(place[1]))] if place else []
    properties_text = ",".join(f"{name}={_property(value)}" for name, value in (*properties, ("title", title)))
    return f"::{level} {properties_text}::{_data(printable(message))}"


def _data(text: str) -> str:
    """Return the text of a workflow command, escaped as GitHub's runner reads it."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Return the value of a property of a workflow command."""
    return _data(printable(text)).replace(":", "%3A").replace(",", "%2C")


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES = {
    "latency": "A step takes longer than in the baseline.",
    "layer": "A layer takes longer than in the baseline.",
    "op": "An op takes longer than in the baseline.",
    "phase": "A phase takes longer than in the baseline.",
    "counter": "A counter of a step is higher than in the baseline.",
    "budget": "A step takes more than its budget.",
}


def to_sarif(check: Check, placed: Placed, version: str) -> str:
    """Return a run of this version of tracekit, with one result for each culprit."""
    rules = [{"id": f"tracekit/{name}", "shortDescription": {"text": text}} for name, text in _RULES.items()]
    driver = {"name": "tracekit", "version": version, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "results": [_result(culprit, placed(culprit)) for culprit in check.culprits],
        "properties": {"outcome": check.outcome, "verdict": verdict_sentence(check)},
    }
    return json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _result(culprit: Culprit, place: tuple[str, int] | None) -> dict[str, Any]:
    where = culprit_text(culprit)
    text = printable(f"{culprit.what}: {culprit.change}{f': {where}' if where else ''}")
    result: dict[str, Any] = {
        "ruleId": f"tracekit/{culprit.what.split(' ')[0]}",
        "level": "error",
        "message": {"text": text},
        "partialFingerprints": {"tracekit/what": printable(culprit.what)},
    }
    if place:
        location = {"artifactLocation": {"uri": place[0]}, "region": {"startLine": place[1]}}
        result["locations"] = [{"physicalLocation": location}]
    return result
