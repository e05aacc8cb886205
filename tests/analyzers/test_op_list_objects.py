from pathlib import Path

from tracekit.analyzers import analyze
from tracekit.analyzers.predict.oplist import build
from tracekit.analyzers.trace import load

TRACE = Path(__file__).parents[2] / "examples" / "traces" / "h200_gpt2_train.json.gz"


def test_equal_costs_and_words_are_one_object():
    trace = load(TRACE)
    ops = build(trace, analyze(trace))
    for name in ("name", "layer", "phase", "category", "cost"):
        assert len(set(map(id, getattr(ops, name)))) == len(set(getattr(ops, name))), name
