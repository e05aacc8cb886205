"""Memory over time: blocks, their kinds, the peak, and the command on a modelled run and on a snapshot."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from tiny_models import settings_of

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.memory.timeline import allocations, kinds_of
from tracekit.capture import model_trace
from tracekit.cli import main

WORK = pd.DataFrame({"time_ns": [10, 20, 30, 40, 50], "phase": ["forward"] * 2 + ["backward"] * 2 + ["optimizer"]})


def moves(*rows):
    """(time, address, bytes) of each; 1,000 bytes are there before."""
    times, addresses, sizes = map(np.array, zip(*rows, strict=True))
    return pd.DataFrame(
        {"time_ns": times, "address": addresses, "bytes": sizes, "allocated_bytes": 1_000 + sizes.cumsum()}
    )


def test_a_block_is_what_its_allocation_and_its_free_say():
    blocks = allocations(
        moves((9, 1, 100), (9, 2, 7), (15, 2, -7), (19, 2, 8), (29, 3, 50), (35, 1, -100), (39, 2, -8), (55, 9, -300))
    )
    assert kinds_of(blocks, WORK).tolist() == ["activations", "workspaces", "activations", "gradients", "gradients"]
    assert blocks.held_before == 700 and blocks.bytes.tolist() == [100, 7, 8, 50, 300]


def test_without_training_what_stays_is_a_cache():
    blocks = allocations(moves((9, 1, 100), (19, 2, 5), (21, 2, -5), (29, 3, 6), (60, 3, -6)))
    work = WORK.assign(phase="decode")
    assert kinds_of(blocks, work).tolist() == ["inputs and caches", "workspaces", "activations"]


def test_a_model_that_is_built_while_recorded_has_weights():
    blocks = allocations(moves((1, 1, 100), (2, 2, 50), (3, 3, 7), (12, 4, 5), (15, 3, -7), (45, 5, 300)))
    kinds = kinds_of(blocks, WORK, weight_bytes=150).tolist()
    assert kinds == ["weights", "weights", "workspaces", "activations", "optimizer state"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = settings_of("gpt2", tmp_path_factory.mktemp("memory"), workload="train", gpu="t4")
    path = tmp_path_factory.mktemp("trace") / "trace.json.gz"
    return model_trace.write_trace(settings, hardware.find("t4"), path), path


def test_the_memory_of_a_modelled_run_adds_up_to_its_peak(run):
    info, path = run
    page = path.with_name("memory.html")
    assert CliRunner().invoke(main, ["memory", str(path), "-o", str(page)]).exit_code == 0
    done = CliRunner().invoke(main, ["memory", str(path), "--format", "json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["peak_bytes"] == info.peak_memory_bytes == sum(row["bytes"] for row in told["at_peak"])
    assert told["by_kind"]["weights"] == info.weight_bytes
    assert told["by_kind"]["optimizer state"] == pytest.approx(2 * info.weight_bytes, rel=0.01)
    assert max(told["over_time"]["gradients"]) == pytest.approx(info.weight_bytes, rel=0.01)
    assert all(each["peak_bytes"] < told["peak_bytes"] for each in told["remedies"])
    assert page.read_text().count("<polygon") >= 5
    text = CliRunner().invoke(main, ["memory", str(path)]).output
    assert text.startswith("MODELLED") and "Who holds the peak" in text


def test_a_trace_without_memory_is_refused():
    done = CliRunner().invoke(main, ["memory", "examples/traces/h200_gpt2_decode.json.gz"])
    assert done.exit_code == 1 and "profile_memory=True" in done.stderr


def test_a_snapshot_over_time(tmp_path):
    frame = {"filename": "train.py", "line": 3, "name": "step"}
    events = [
        {"action": "alloc", "addr": 1, "size": 100, "frames": [frame], "time_us": 10},
        {"action": "alloc", "addr": 2, "size": 50, "frames": [], "time_us": 20},
        {"action": "free_completed", "addr": 1, "size": 100, "frames": [], "time_us": 30},
    ]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}))
    page = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["memory", str(path), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert "train.py:3 (step)" in page.read_text() and page.read_text().count("<polygon") == 2 * 2  # wide and narrow
