"""benchmarks/ranks/eight_jobs.py with two processes: the plan is sealed, a job is recorded, diagnosed and scored."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from same_process import printed

ROOT = Path(__file__).parents[2]
pytest.importorskip("torch")


def call(*arguments):
    return printed("benchmarks.ranks.eight_jobs", *arguments)


def recorded(*arguments):
    """Record a job in a process of its own, whose ranks are forks of it."""
    command = [sys.executable, "-m", "benchmarks", "ranks.eight_jobs", "run", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
def test_a_job_is_drawn_recorded_diagnosed_and_scored(tmp_path):
    plan, rows, traces = tmp_path / "plan.json", tmp_path / "rows.csv", tmp_path / "traces"
    call("draw", plan, rows, "--ranks", 2, "--seed", 1)
    faults = [row["fault"] for row in json.loads(plan.read_text())["jobs"].values()]
    assert len(faults) == 10 and faults.count("healthy") == 5 and len(set(faults)) == 6
    assert recorded(plan, traces, "--only", "ddp-a").returncode == 0
    assert len(list((traces / "ddp-a").iterdir())) == 2
    assert "ddp-a: " in call("diagnose", traces, rows)
    assert " right" in call("score", plan, rows)
    first, *rest = csv.DictReader(rows.open(encoding="utf-8"))
    assert first["said"] and first["right"] and not any(row["right"] for row in rest)
    plan.write_text(plan.read_text().replace('"salt": "', '"salt": "0'))
    with pytest.raises(SystemExit, match="not the plan that was sealed"):
        call("score", plan, rows)
