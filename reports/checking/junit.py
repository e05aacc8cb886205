"""A check as JUnit XML: one test case for the latency, each counter, each part and each budget."""

from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from tracekit.analyzers.gate.verdict import Check, Outcome
from tracekit.reports.checking.check_sentences import budget_change, counter_change, time_change, verdict_sentence
from tracekit.reports.names import printable


def to_junit(check: Check) -> str:
    """Return the XML. A regression that decides the verdict is a failure; an inconclusive result is skipped."""
    cases = [*_cases(check)]
    failed = sum(outcome == "regressed" for _, outcome, _ in cases)
    skipped = sum(outcome == "inconclusive" for _, outcome, _ in cases)
    numbers = {"tests": str(len(cases)), "failures": str(failed), "skipped": str(skipped)}
    suite = Xml.Element("testsuite", {"name": "tracekit check", **numbers})
    properties = Xml.SubElement(suite, "properties")
    Xml.SubElement(properties, "property", {"name": "verdict", "value": _clean(verdict_sentence(check))})
    for name, outcome, text in cases:
        case = Xml.SubElement(
            suite, "testcase", {"classname": _clean(check.baseline or check.run), "name": _clean(name)}
        )
        if outcome in ("regressed", "inconclusive"):
            kind = "failure" if outcome == "regressed" else "skipped"
            Xml.SubElement(case, kind, {"message": _clean(text)})
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


def _clean(text: str) -> str:
    """Replace control characters, which XML cannot contain."""
    return printable(text)
