"""Jobs of 8 and 16 ranks with planted faults, generated from one recorded rank."""

from pathlib import Path

import pytest

from benchmarks.ranks.generated_jobs import FAULTS, run_job
from tracekit.analyzers.ranks import summarize
from tracekit.analyzers.trace import reading

BASE = Path(__file__).parents[2] / "examples" / "ranks" / "healthy-1-4" / "rank-0.json.gz"


@pytest.fixture(scope="module")
def base():
    return summarize(reading.load(BASE))


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=lambda number: FAULTS[number])
def test_the_fault_is_named(base, number):
    fault, _, said = run_job(base, number, sizes=(8, 16))
    assert said == "right", fault


def test_another_healthy_job(base):
    assert run_job(base, len(FAULTS), sizes=(8, 16))[2] == "right"
