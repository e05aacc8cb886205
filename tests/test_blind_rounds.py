"""benchmarks/blind: draw, trace, predict, measure and score, at tiny size on a CPU; predictions of a GPU's trace."""

import csv
import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from same_process import printed

ROOT = Path(__file__).parents[1]
BLIND = ROOT / "benchmarks" / "blind"
GPT2 = {"model": "gpt2", "workload": "decode", "batch": 1, "length": 512, "dtype": "fp32", "attention": "sdpa"}
TINY = ("--device", "cpu", "--tiny", "--rounds", "2")


CALLS = """
import runpy, sys
for sys.argv in {calls!r}:
    try:
        runpy.run_module(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        assert not end.code, end.code
"""


def script(*calls):
    """Run scripts, each given by its name and arguments, in one process, which imports PyTorch once."""
    calls = [[f"benchmarks.blind.{name}", *map(str, arguments)] for name, *arguments in calls]
    command = [sys.executable, "-c", CALLS.format(calls=calls)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def drawn(path, *arguments):
    printed("benchmarks.blind.draw", *arguments, "-o", path)
    return json.loads(path.read_text())


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return drawn(tmp_path_factory.mktemp("drawn") / "plan.json", 11)


def test_a_draw_is_told_by_its_seed(plan, tmp_path):
    assert drawn(tmp_path / "again.json", 11) == plan
    assert drawn(tmp_path / "other.json", 12)["runs"] != plan["runs"]


def test_a_draw_is_balanced_and_leaves_held_out_models_alone(plan, tmp_path):
    last = drawn(tmp_path / "last.json", 11, "--held-out", "3")
    assert not {run["model"] for run in plan["runs"]} & {run["model"] for run in last["runs"]}
    for each in (plan, last):
        names = [name.partition(":")[0] for run in each["runs"] for name in run["optimizations"]]
        assert len(names) >= 40 and len(set(names)) >= 8
        assert sum("compile" in name for name in names) <= 14
        assert max(Counter(run["workload"] for run in each["runs"]).values()) <= 9
        assert max(Counter(run["model"] for run in each["runs"]).values()) <= 2


def test_pieces_hold_every_run_once_and_take_as_long(plan, tmp_path):
    planned = importlib.import_module("benchmarks.blind.plan")
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    runs = planned.read(tmp_path / "plan.json").runs
    pieces = planned.in_pieces(runs, 3)
    assert sorted(run.name for piece in pieces for run in piece) == sorted(run.name for run in runs)
    rows = [sum(1 + 3 * ("compile" in name) for run in piece for name in run.optimizations) for piece in pieces]
    assert max(rows) < 1.5 * min(rows)


def test_pieces_are_joined_unless_their_machines_differ(tmp_path):
    planned = importlib.import_module("benchmarks.blind.plan")
    files = [tmp_path / f"{i}.json" for i in range(3)]
    for i, file in enumerate(files):
        machine = {"gpu": "NVIDIA H100" if i < 2 else "NVIDIA H200", "cpu": "x"}
        file.write_text(json.dumps({"machine": machine, "seed": 1, "runs": {f"r0{2 - i}": {"compile": {}}}}))
    assert list(planned.joined(files[:2])["runs"]) == ["r01", "r02"]
    with pytest.raises(SystemExit, match="different machines"):
        planned.joined(files)


def test_what_measures_imports_nothing_of_tracekit():
    ours = {"predict.py", "rescore.py", "joined.py", "score.py"}
    assert not [path for path in BLIND.glob("*.py") if path.name not in ours and "import tracekit" in path.read_text()]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return the folder of a measured round of two runs, and what its scripts print."""
    folder = tmp_path_factory.mktemp("round")
    runs = [
        {**GPT2, "name": "r01", "model": "smollm2-1_7b", "optimizations": ["static-cache", "batching:4"]},
        {**GPT2, "name": "r02", "model": "dit-b-2", "workload": "train", "length": 0, "attention": ""},
    ]
    runs[1]["optimizations"] = ["fused-optimizer", "cuda-graphs"]
    (folder / "plan.json").write_text(json.dumps({"seed": 0, "held_out": False, "runs": runs}))
    out = folder / "cpu"
    printed = script(
        *(["measure", folder / "plan.json", out, stage, *TINY] for stage in ("--trace-only", "--measure")),
        ["predict", folder / "plan.json", out, out / "predictions.csv"],
        ["score", folder],
    )
    return folder, printed


def test_runs_are_timed_and_traced_with_and_without_ranges(measured):
    traced = json.loads((measured[0] / "cpu" / "traced.json").read_text())
    assert traced["machine"]["cpu"] and traced["machine"]["torch"]
    for row in traced["runs"].values():
        assert row["run"]["step_ms"]["q1"] <= row["run"]["step_ms"]["median"] and row["run"]["parameters"]
        assert 0 < row["run"]["trace"]["bytes"] <= 600_000
    assert len(list((measured[0] / "cpu" / "traces").glob("*.json.gz"))) == 4


def test_optimizations_are_measured_and_what_fails_is_a_row(measured):
    runs = json.loads((measured[0] / "cpu" / "measured.json").read_text())["runs"]
    assert runs["r01"]["batching:4"]["work"] == 2  # tiny: twice the batch
    for row in (*runs["r01"].values(), runs["r02"]["fused-optimizer"]):
        assert row["speedup"]["q1"] <= row["speedup"]["median"] <= row["speedup"]["q3"]
    assert "CUDA" in runs["r02"]["cuda-graphs"]["error"]


def test_nothing_is_predicted_from_a_cpus_trace(measured):
    folder, printed = measured
    said = rows(folder / "cpu" / "predictions.csv")
    assert len(said) == 8 and {row["evidence"] for row in said} == {"trace", "capture"}
    assert {row["refused"] for row in said} == {"The trace has no GPU work to predict from."}
    assert "4 rows: 0 compared, 3 refused although they could be measured, 1 not measured" in printed


def test_a_gpus_trace_is_predicted_and_scored(tmp_path):
    names = ["cuda-graphs", "half-precision:bf16", "fused-optimizer"]
    run = {**GPT2, "name": "r01", "model": "bert", "workload": "prefill", "optimizations": names}
    (tmp_path / "plan.json").write_text(json.dumps({"seed": 0, "held_out": False, "runs": [run]}))
    _traced(tmp_path / "h200")
    out = tmp_path / "h200" / "predictions.csv"
    printed("benchmarks.blind.predict", tmp_path / "plan.json", tmp_path / "h200", out)
    said = {row["optimization"]: row for row in rows(out) if row["evidence"] == "capture"}
    graphs = float(said["cuda-graphs"]["expected"])
    assert float(said["cuda-graphs"]["low"]) <= graphs <= float(said["cuda-graphs"]["high"])
    assert said["fused-optimizer"]["refused"] and said["cuda-graphs"]["baseline_us"] == "5000"
    took = {"median": 5.0}
    gains = {"cuda-graphs": {"speedup": {"median": graphs / 1.25}, "before_ms": took, "after_ms": took}}
    gains["half-precision:bf16"] = {"error": "no memory"}
    (tmp_path / "h200" / "measured.json").write_text(json.dumps({"runs": {"r01": gains}}))
    text = printed("benchmarks.blind.score", tmp_path)
    assert "3 rows: 1 compared, 0 refused although they could be measured, 2 not measured" in text
    assert "| cuda-graphs | 1 | 25 % | 25 % | 100 % |" in text and "no memory" in text


def _traced(folder):
    """Write a folder like measure.py's: a trace, and the times measured beside it."""
    (folder / "traces").mkdir(parents=True)
    sample = (ROOT / "examples" / "traces" / "h200_bert_prefill.json.gz").read_bytes()
    for name in ("r01.json.gz", "r01.ranges.json.gz"):
        (folder / "traces" / name).write_bytes(sample)
    sizes = {"parameters": 1, "weight_bytes": 438_000_000, "buffer_bytes": 0, "peak_bytes": 10**9}
    took = {"median": 5.0, "q1": 4.9, "q3": 5.1, "p10": 4.8, "p90": 5.2, "samples": 70}
    machine = {"gpu": "NVIDIA H200", "driver": "", "python": "3.12.3", "torch": "2.11.0", "transformers": "5.17.0"}
    row = {"run": {"step_ms": took, **sizes, "trace_with_ranges": {"bytes": 1, "steps": 3}}}
    (folder / "traced.json").write_text(json.dumps({"machine": machine, "runs": {"r01": row}}))
