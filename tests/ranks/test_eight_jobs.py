"""benchmarks/ranks/eight_jobs.py with two processes: the plan is sealed, a job is recorded, diagnosed and scored."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("torch")


def call(*arguments):
    command = [sys.executable, "-m", "benchmarks", "ranks.eight_jobs", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
def test_a_job_is_drawn_recorded_diagnosed_and_scored(tmp_path):
    plan, rows, traces = tmp_path / "plan.json", tmp_path / "rows.csv", tmp_path / "traces"
    assert call("draw", plan, rows, "--ranks", 2, "--seed", 1).returncode == 0
    faults = [row["fault"] for row in json.loads(plan.read_text())["jobs"].values()]
    assert len(faults) == 10 and faults.count("healthy") == 5 and len(set(faults)) == 6
    assert call("run", plan, traces, "--only", "ddp-a").returncode == 0
    assert len(list((traces / "ddp-a").iterdir())) == 2
    assert call("diagnose", traces, rows).returncode == 0
    assert " right" in call("score", plan, rows).stdout
    first, *rest = csv.DictReader(rows.open(encoding="utf-8"))
    assert first["said"] and first["right"] and not any(row["right"] for row in rest)
    plan.write_text(plan.read_text().replace('"salt": "', '"salt": "0'))
    assert "not the plan that was sealed" in call("score", plan, rows).stderr
