"""Equal costs and words of an op list are one object, so that comparing them is fast."""

import subprocess
import sys
from pathlib import Path

TRACE = Path(__file__).parents[2] / "examples" / "traces" / "h200_gpt2_train.json.gz"
_WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None  # as in the commands
from tracekit.analyzers import analyze, load
from tracekit.analyzers.predict.oplist import listed

trace = load(sys.argv[1])
ops = listed(trace, analyze(trace)).ops
for name in ("name", "layer", "phase", "category", "cost"):
    assert len(set(map(id, getattr(ops, name)))) == len(set(getattr(ops, name))), name
"""


def test_equal_costs_and_words_are_one_object():
    subprocess.run([sys.executable, "-c", _WITHOUT_PYARROW, str(TRACE)], check=True)
