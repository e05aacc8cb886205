"""A slice of the mutated inputs of each format, and what the runner notices; `python -m tests.fuzz` runs thousands."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from . import bases, counters
from .formats import FORMATS, files_of
from .runner import Ended, FuzzError, _check_counts, _check_end

PART = 5
"""Inputs of each format."""
TOGETHER = [list(FORMATS)[first::2] for first in range(2)]
"""Formats that one process mutates in turn: importing what reads them takes longer than reading a dozen inputs."""
SOUND = Ended(0, "", "", 1.0, 1 << 20, device_ns=24 * 8000, events=74)


def timeline(**times):
    return json.dumps({"timeline": {"steps": [], **times}})


@pytest.mark.slow
@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_mutated_inputs(names):
    command = [sys.executable, "-m", "tests.fuzz", "--count", str(PART * len(names)), "--seed", "1"]
    command += [word for name in names for word in ("--format", name)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [name for name, chosen in FORMATS.items() if chosen.count])
def test_counters_agree_on_the_device_time_of_a_sound_file(name):
    (data,) = files_of(FORMATS[name], FORMATS[name].tree()).values()
    counted = FORMATS[name].count(data, data)
    expected = {"proton": 24 * 800, "nsys": 24 * 500, "ncu": sum(range(1000, 1024))}
    known = expected.get(name, 3 * sum(range(1000, 1024)) if name == "hatchet" else 24 * 8000)
    assert counted.device_ns == known


def test_a_kernel_that_vanishes_is_noticed():
    data = bases.json_bytes(bases.kineto())
    _check_counts(FORMATS["kineto"], data, data, SOUND)
    with pytest.raises(FuzzError, match="device time"):
        _check_counts(FORMATS["kineto"], data, data, replace(SOUND, device_ns=23 * 8000))
    with pytest.raises(FuzzError, match="1 events were lost"):
        _check_counts(FORMATS["kineto"], data, data, replace(SOUND, events=71))


def test_an_impossible_duration_is_not_counted_but_must_be_told():
    trace = bases.kineto()
    kernel = next(event for event in trace["traceEvents"] if event["cat"] == "kernel")
    for odd in (2**63, -1, "8", None):
        kernel["dur"] = odd
        assert counters.kineto(json.dumps(trace).encode(), b"") == counters.Count(72)


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (replace(SOUND, status=1, err="error: This is a bug of tracekit."), "bug"),
        (replace(SOUND, status=-9), "ended with -9"),
        (replace(SOUND, cpu_s=11.0), "11.0 s"),
        (replace(SOUND, peak_bytes=2 << 30), "2048 MiB"),
        (replace(SOUND, out='{"timeline": NaN}'), "NaN"),
        (
            replace(
                SOUND, out=json.dumps({"timeline": {"steps": [], "wall_us": 1, "gpu_busy_us": 2, "gpu_idle_us": 0}})
            ),
            "busy 2",
        ),
        (
            replace(
                SOUND, out=json.dumps({"timeline": {"steps": [], "wall_us": 2, "gpu_busy_us": 2, "gpu_idle_us": -1}})
            ),
            "idle -1",
        ),
    ],
)
def test_an_end_that_may_not_be_is_noticed(ended, why):
    with pytest.raises(FuzzError, match=why):
        _check_end(ended, ["analyze", "--format", "json"])
