"""Evidence of recommendations: every statement has words, and every value is in a table."""

import json
from pathlib import Path

import pytest

import tracekit
from tracekit.analyzers.core import TABLES
from tracekit.reports.answer.export import to_dict
from tracekit.reports.words import wording

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
        assert "{" not in wording.sentence(statement)
        for evidence in statement.evidence:
            assert evidence.column in [column.name for column in TABLES[evidence.table].columns]


def test_json_has_the_evidence_as_data(analysis):
    exported = json.loads(json.dumps(to_dict(analysis)))
    for advice, given in zip(analysis.recommendations, exported["recommendations"], strict=True):
        values = [(s.kind, e.role) for s in (*advice.reason, *advice.evidence) for e in s.evidence]
        assert [(fact["statement"], fact["role"]) for fact in given["facts"]] == values
        assert all(fact["value"] is not None for fact in given["facts"])
