"""A check as SARIF 2.1.0, which code scanning reads."""

from typing import Any

from tracekit.analyzers.gate.verdict import Check, Culprit
from tracekit.reports.checking.check_sentences import culprit_text, verdict_sentence
from tracekit.reports.checking.github_annotations import Placed
from tracekit.reports.names import printable
from tracekit.reports.untrusted import json_text

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
