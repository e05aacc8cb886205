"""Times of written kernels: how they are taken, kept in a run's folder, shown in its plan, and used to predict."""

import pytest
from click.testing import CliRunner

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import TimedKernel, placed, plan, table
from tracekit.analyzers.results import LAYER_OPS
from tracekit.capture import torch_dtype
from tracekit.cli import main
from tracekit.fuse import run_kernels, timing
from tracekit.fuse.writing import load
from tracekit.run import kernels_json
from tracekit.run.folder import TIMED

H100 = hardware.find("h100")
TIMES = TimedKernel(after_ns=1000.0, before_ns=5000.0, roof_fraction=0.9, compiled_ns=1100.0)


def test_measured_times_stand_in_the_plan(llama, tmp_path):
    row = plan(llama[1], H100)[0]
    kernels_json.add(tmp_path, H100, {row.key: TIMES})
    empty = LAYER_OPS.empty()
    frame = table(llama[1], H100, empty, 0, kernels_json.read_kernel_times(tmp_path, H100).kernels)
    assert frame.measured_ns[0] == 1000.0 * row.groups
    assert frame.compiled_ns[0] == 1100.0 * row.groups
    assert frame.roof_fraction[0] == 0.9
    assert frame.measured_ns[1:].isna().all()


def test_times_of_a_kernel_are_kept_beside_those_of_others(tmp_path):
    kernels_json.add(tmp_path, H100, {"norm": TIMES})
    kernels_json.add(tmp_path, H100, {"rotary": TIMES})
    assert set(kernels_json.read_kernel_times(tmp_path, H100).kernels) == {"norm", "rotary"}
    assert kernels_json.read_kernel_times(tmp_path, hardware.find("t4")).kernels == {}
    (tmp_path / TIMED).write_text('{"gpu": "h100-sxm", "kernels": {"norm": [1.0, 2.0]}}')
    assert kernels_json.read_kernel_times(tmp_path, H100).kernels == {}
    (tmp_path / TIMED).write_text('{"gpu": "h100-sxm", "speedup": [1.3, 1.2, 1.1]}')
    assert kernels_json.read_kernel_times(tmp_path, H100).gain is None


def test_a_timed_kernel_takes_its_measured_part_of_the_ops(llama):
    row = next(row for row in plan(llama[1], H100) if row.template == "add_norm")
    before, after = (
        next(group for group in placed(llama[1], H100, times) if group.template == "add_norm")
        for times in ({}, {row.key: TIMES})
    )
    assert not before.passes[0].timed
    assert after.passes[0].timed
    assert after.passes[0].ratio == pytest.approx(TIMES.after_ns / TIMES.before_ns)


def test_a_kernel_is_timed_in_turn_and_its_fastest_launch_kept(run, tmp_path, monkeypatch):
    """The times are made up; what is called is real, in Triton's interpreter."""
    pytest.importorskip("triton")
    calls = []

    def ns(function, sets):
        calls.append(function(*sets[0]))
        return float(1000 - len(calls))

    monkeypatch.setattr(timing, "_ns", ns)
    monkeypatch.setattr(timing, "_compiled_ns", lambda *_: 700.0)
    monkeypatch.setattr(timing, "copy_rate", lambda *_: 3e12)
    monkeypatch.setattr(timing, "is_here", lambda _: True)
    monkeypatch.setattr(timing, "_inputs", lambda kernel, *_: [kernel.example(torch_dtype("fp32"), "cpu")])
    rows, _ = run_kernels.rows_of(run, H100)
    number = next(i for i, row in enumerate(rows, 1) if row.template == "gated_activation")
    result = CliRunner().invoke(main, ["fuse", str(run), "--group", str(number), "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "measured" in result.output
    assert "torch.compile" in result.output
    (times,) = kernels_json.read_kernel_times(run, H100).kernels.values()
    assert times.launch == rows[number - 1].tiles.launches[-1]  # each call was faster than the one before
    (path,) = tmp_path.glob("*.py")
    assert times.launch == load(path, "timed").CONFIG
    (run / TIMED).unlink()
