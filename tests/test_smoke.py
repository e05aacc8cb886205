"""`python -m benchmarks smoke`: its commands exist, and a check fails by each of the ways in which one can."""

import json
import sys
from pathlib import Path

import click
import pytest
from same_process import printed

pytest.importorskip("torch")

import tracekit
from benchmarks.smoke import numbers, running
from benchmarks.smoke.checks import Check, checks
from benchmarks.smoke.numbers import Ended, ImpossibleError
from tracekit.cli import main
from tracekit.reports.answer.export import to_json

ROOT = Path(__file__).parents[1]
TOUCH_A_GPU = {"profile", "run", "verify", "bench", "calibrate", "fuse", "memory", "check", "compare", "open"}


@pytest.mark.parametrize("gpu", [True, False])
def test_commands_of_the_table_exist_with_their_options(tmp_path, gpu):
    table = checks(tmp_path, gpu)
    assert len({each.name for each in table}) == len(table)
    commands = [list(each.command[3:]) for each in table if each.command[1:3] == ("-m", "tracekit")]
    assert {name for name, *_ in commands} >= TOUCH_A_GPU
    whole = click.Context(main, **main.context_settings)
    for words in commands:
        name, command, arguments = main.resolve_command(whole, words)
        command.make_context(name, arguments, parent=whole)


def test_a_check_waits_for_those_before_it_that_share_its_folder(tmp_path):
    table = {each.name: each for each in checks(tmp_path, gpu=True)}
    first, other, after = table["profile prefill-bf16"], table["profile decode-bf16"], table["compare"]
    assert running._free([first, other, after], []) == [first, other]
    assert running._free([after], [other]) == [after]
    alone = table["profile prefill-fp32"]
    assert running._free([alone, other], []) == [alone]
    assert not running._free([alone, other], [first]) and not running._free([other], [alone])
    assert not running._free([after], [first])
    assert not running._free([table["memory of a snapshot"]], [table["own module: snapshot"]])


def test_every_workload_and_api_has_a_check(tmp_path):
    used = [each.command for each in checks(tmp_path, gpu=True)]
    for word in ("prefill", "decode", "generate", "train", "fused:all", "--top", "--measure", "capture", "quantize"):
        assert any(word in command for command in used), word


@pytest.mark.parametrize(
    ("code", "options", "says"),
    [
        ("print(1)", {}, ""),
        ("raise SystemExit(3)", {"statuses": (0, 3)}, ""),
        ("import sys; print('last words'); sys.exit(1)", {}, "status 1\n    last words"),
        ("print(1)", {"files": ("report.html",)}, "not written: report.html"),
        ("import time; print('begun', flush=True); time.sleep(60)", {"seconds": 1.0}, "not done after 1 s\n    begun"),
        ("print('no JSON')", {"judge": numbers.predicted}, "JSONDecodeError"),
        ('print(\'{"speedup": {"expected": 1000}}\')', {"judge": numbers.predicted}, "is 1000 times as fast"),
    ],
)
def test_a_check_fails_by_what_it_leaves(tmp_path, code, options, says):
    check = Check("one", (sys.executable, "-c", code), **options)
    (ended,) = running.run([check], tmp_path, gpu=True, seconds=60, jobs=1)
    assert ended.state == ("FAILED" if says else "ok")
    assert says in ended.why


def test_what_cannot_be_tried_is_skipped_with_the_reason(tmp_path):
    command = (sys.executable, "-c", "raise SystemExit(1)")
    table = [Check("a", command, needs=("no_such_package",)), Check("b", command, on_gpu=True)]
    assert [(each.state, each.why) for each in running.run(table, tmp_path, gpu=False, seconds=60, jobs=1)] == [
        ("skipped", "no_such_package is not installed"),
        ("skipped", "it needs a GPU"),
    ]
    assert [each.why for each in running.run([Check("c", command)], tmp_path, gpu=False, seconds=-1, jobs=1)] == [
        "the seconds are over"
    ]


def analysis(**changes):
    kernel = {"name": "gemm", "duration_us": 100.0, "flops": 50_000_000_000}
    return {
        "latency": {"unprofiled_us": 120.0, "profiled_us": 130.0},
        "timeline": {"gpu_busy_us": 100.0, "wall_us": 130.0},
        "bound": {"compute": 0.75, "launch": 0.25},
        "kernels": [kernel],
        "source": {"roofs": {"peaks_tflops": {"bf16": 989.0}}},
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"latency": {"unprofiled_us": 0.0, "profiled_us": 1.0}}, "unprofiled_us is 0.0"),
        ({"timeline": {"gpu_busy_us": 140.0, "wall_us": 130.0}}, "busy for 140.0 of 130.0 us"),
        ({"bound": {"compute": 0.5}}, "sum to 0.5"),
        ({"kernels": []}, "nothing ran on the GPU"),
        ({"kernels": [{"name": "gemm", "duration_us": 1.0, "flops": 2_000_000_000}]}, "gemm: 2000 TFLOP/s of at most"),
    ],
)
def test_numbers_that_physics_forbids(tmp_path, changes, says):
    (tmp_path / "analysis.json").write_text(json.dumps(analysis(**changes)))
    ended = Ended(tmp_path, tmp_path, "", gpu=True)
    if not says:
        numbers.run(ended)
        return
    with pytest.raises(ImpossibleError, match=says):
        numbers.run(ended)


def test_numbers_of_a_real_run(tmp_path):
    sample = ROOT / "examples" / "traces" / "h200_gpt2_decode.json.gz"
    (tmp_path / "analysis.json").write_text(to_json(tracekit.analyze(sample)), "utf-8")
    numbers.run(Ended(tmp_path, tmp_path, "", gpu=True))


@pytest.mark.slow
def test_two_checks_without_a_gpu(tmp_path):
    told = printed("benchmarks", "smoke", "--out", tmp_path, "--without-gpu", "--only", "*plan")
    assert "1 ok, 0 FAILED, 1 skipped" in told
    result = json.loads((tmp_path / "smoke.json").read_text())
    assert {each["name"]: each["state"] for each in result["checks"]} == {
        "fuse: the plan": "skipped",
        "serve-plan": "ok",
    }
    assert (result["FAILED"], result["machine"]["torch"] != "") == (0, True)
