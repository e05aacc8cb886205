"""Memory snapshots: laid out as torch.cuda.memory._dump_snapshot() writes them, and pickles that are something else."""

import json
import pickle
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekit.analyzers.memory import read_snapshot, summarize
from tracekit.analyzers.memory.snapshot import UNKNOWN
from tracekit.cli import main

MB = 1 << 20
SAMPLE = Path(__file__).parents[2] / "examples/memory/h100_training.pickle"


def frames(line):
    return [
        {"filename": "/opt/lib/torch/nn/functional.py", "line": 9, "name": "linear"},
        {"filename": "model.py", "line": line, "name": "forward"},
        {"filename": "??", "line": 0, "name": "_PyEval_EvalFrameDefault"},
    ]


def event(action, addr, size, line=0):
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": 1,
        "frames": frames(line) if line else [],
    }


SNAPSHOT = {
    "segments": [
        {
            "device": 0,
            "address": 0,
            "total_size": 20 * MB,
            "stream": 0,
            "segment_type": "large",
            "allocated_size": 6 * MB,
            "active_size": 7 * MB,
            "blocks": [
                {
                    "address": 0,
                    "size": 6 * MB,
                    "requested_size": 6 * MB,
                    "state": "active_allocated",
                    "frames": frames(3),
                },
                {"address": 6 * MB, "size": MB, "requested_size": MB, "state": "active_awaiting_free", "frames": []},
                {"address": 7 * MB, "size": 13 * MB, "requested_size": 0, "state": "inactive", "frames": []},
            ],
        }
    ],
    "device_traces": [
        [
            event("segment_alloc", 0, 20 * MB),
            event("free_requested", 77, 2 * MB),
            event("free_completed", 77, 2 * MB),
            event("alloc", 10, 8 * MB, line=12),
            event("alloc", 11, 4 * MB, line=12),
            event("alloc", 12, 1 * MB),
            event("free_completed", 10, 8 * MB),
            event("free_completed", 11, 4 * MB),
            {**event("oom", 0, 64 * MB), "device_free": 3 * MB},
        ],
        [],
    ],
}


def written(path, value):
    path.write_bytes(pickle.dumps(value))
    return path


def test_what_is_held_and_who_held_the_most(tmp_path):
    (device,) = summarize(read_snapshot(written(tmp_path / "s.pickle", SNAPSHOT)))
    assert (device.reserved, device.allocated, device.awaiting_free) == (20 * MB, 6 * MB, MB)
    assert (device.inactive, device.largest_inactive) == (13 * MB, 13 * MB)
    # 7 MB are active at the end; the events add 1 - 2 MB, so that 8 MB were there before, 6 of them when 13 were added.
    assert (device.peak, device.before_recording) == (19 * MB, 6 * MB)
    assert device.at_peak == (("model.py:12 (forward)", 12 * MB, 2), (UNKNOWN, MB, 1))
    assert device.now == (("model.py:3 (forward)", 6 * MB, 1),)
    assert device.failures == ((64 * MB, 3 * MB),)
    assert device.lost_allocations == 1


def test_the_command(tmp_path):
    path = written(tmp_path / "s.pickle", SNAPSHOT)
    text = CliRunner().invoke(main, ["memory", str(path)]).output
    assert re.search(r"model.py:12 \(forward\) .* 2$", text, re.M)
    assert "out of memory" in text
    assert "allocated before recording began" in text
    told = json.loads(CliRunner().invoke(main, ["memory", str(path), "--format", "json"]).output)
    assert told["devices"][0]["at_peak"][0] == {"place": "model.py:12 (forward)", "bytes": 12 * MB, "allocations": 2}


def test_a_snapshot_of_a_gpu_counts_what_torch_counts():
    """Recorded on an H100 by examples/memory_snapshot.py, which printed torch's own peak and what was allocated."""
    (device,) = summarize(read_snapshot(SAMPLE))
    assert (device.peak, device.allocated) == (89_860_608, 81_389_056)
    assert (device.before_recording, device.lost_allocations, device.failures) == (0, 0, ())
    places = {where: size for where, size, _ in device.now}
    weights = 4 * (4 * (512 * 512 + 512) + 512 * 16 + 128)
    assert places["examples/memory_snapshot.py:18 (main)"] == weights
    assert sum(places.values()) == device.allocated


class Hostile:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        import os

        return os.system, (self.command,)


@pytest.mark.parametrize("nested", [False, True])
def test_a_pickle_that_would_execute_something_is_refused_and_does_not(tmp_path, nested):
    mark = tmp_path / "executed"
    hostile = Hostile(f"touch {mark}")
    value = {**SNAPSHOT, "allocator_settings": [hostile]} if nested else hostile
    answer = CliRunner().invoke(main, ["memory", str(written(tmp_path / "s.pickle", value))])
    assert answer.exit_code == 1
    assert "nothing in it may be executed" in answer.output
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x05",
        pickle.dumps(SNAPSHOT)[:200],
        b"{}",
        pickle.dumps([1]),
        pickle.dumps({"segments": 3}),
        b"\x80\x04)\x94R.",
        pickle.dumps({**SNAPSHOT, "device_traces": [[event("alloc", 1, 2**62)]]}),
        pickle.dumps({**SNAPSHOT, "device_traces": [[event("alloc", 1, -5)]]}),
        pickle.dumps({**SNAPSHOT, "device_traces": [[{**event("alloc", 1, 1), "time_us": 2**62}]]}),
        pickle.dumps({**SNAPSHOT, "segments": [{"total_size": 1 << 2000, "blocks": []}]}),
    ],
)
def test_other_files_are_explained(tmp_path, content):
    path = tmp_path / "s.pickle"
    path.write_bytes(content)
    answer = CliRunner().invoke(main, ["memory", str(path)])
    assert answer.exit_code == 1
    assert "cannot be read" in answer.output
    assert "bug" not in answer.output


def test_a_snapshot_without_events_shows_what_is_allocated(tmp_path):
    path = written(tmp_path / "s.pickle", {"segments": SNAPSHOT["segments"], "device_traces": [[]]})
    text = CliRunner().invoke(main, ["memory", str(path)]).output
    assert "no events were recorded" in text
    assert "model.py:3 (forward)" in text
    assert CliRunner().invoke(main, ["memory", str(tmp_path / "none.pickle")]).exit_code == 1


def test_shared_stacks_are_read_once_and_repeated_lists_are_counted(tmp_path, monkeypatch):
    """3,000 bytes repeat 500 frames in each of 500 blocks of each of 500 segments."""
    stack = [frames(3)[1]] * 500
    segment = {**SNAPSHOT["segments"][0], "blocks": [{"size": 1, "state": "inactive", "frames": stack}] * 500}
    path = written(tmp_path / "s.pickle", {"segments": [segment] * 500})
    assert path.stat().st_size < 4_000
    (device,) = summarize(read_snapshot(path))
    assert device.inactive == 500 * 500
    monkeypatch.setenv("TRACEKIT_LIMIT_OBJECTS", "249999")
    answer = CliRunner().invoke(main, ["memory", str(path)])
    assert answer.exit_code == 1
    assert "more than 249,999 objects" in answer.output and "TRACEKIT_LIMIT_OBJECTS" in answer.output


def test_a_snapshot_of_nothing_has_a_page(tmp_path):
    path = written(tmp_path / "s.pickle", {"segments": [{"total_size": 0, "blocks": []}]})
    answer = CliRunner().invoke(main, ["memory", str(path), "-o", str(tmp_path / "page.html")])
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "page.html").exists()
