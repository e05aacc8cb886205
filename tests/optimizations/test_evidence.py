"""What recommendations rest on: every statement has its words, every value its cell."""

import json
from pathlib import Path

import pytest

import tracekit
from tracekit.analyzers.tables import TABLES
from tracekit.reports import html, markdown, sentences, terminal
from tracekit.reports.export import to_dict
from tracekit.reports.numbers import percent

SAMPLES = sorted((Path(__file__).parents[2] / "examples" / "traces").glob("*.json.gz"))


@pytest.fixture(scope="module", params=SAMPLES, ids=lambda path: path.stem)
def analysis(request):
    return tracekit.analyze(request.param)


def statements(analysis):
    for advice in analysis.recommendations:
        yield from (*advice.reason, *advice.evidence)
    for option in analysis.considered:
        yield from option.reason


def test_every_statement_has_words_and_every_value_a_declared_cell(analysis):
    for statement in statements(analysis):
        assert "{" not in sentences.sentence(statement)
        for evidence in statement.evidence:
            assert evidence.column in [column.name for column in TABLES[evidence.table].columns]


def test_the_idle_share_is_one_number(analysis):
    quoted = {e.value for s in statements(analysis) for e in s.evidence if e.column == "idle_share"}
    idle = 1 - analysis.busy_share
    assert all(value == pytest.approx(idle) for value in quoted)
    assert analysis.predicted_from is None or analysis.bound.launch == pytest.approx(idle, abs=1e-6)
    if analysis.source.device == "gpu":
        assert f"idle {percent(idle)}" in terminal.summary(analysis)
        assert f"<b>{percent(idle)}</b>".replace(" %", "\N{NO-BREAK SPACE}%") in html.render(analysis)
        assert percent(idle) in markdown.render(analysis)


def test_json_has_the_evidence_as_data(analysis):
    exported = json.loads(json.dumps(to_dict(analysis)))
    for advice, given in zip(analysis.recommendations, exported["recommendations"], strict=True):
        values = [(s.kind, e.role) for s in (*advice.reason, *advice.evidence) for e in s.evidence]
        assert [(fact["statement"], fact["role"]) for fact in given["facts"]] == values
        assert all(fact["value"] is not None for fact in given["facts"])
