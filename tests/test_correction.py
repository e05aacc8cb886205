"""Corrections of predictions by measurements on this machine."""

import math

import pytest

from tracekit.advise import corrections
from tracekit.advise.corrections import MOST, Measurement, correction
from tracekit.analyzers.core import Interval
from tracekit.answer import analyze, predict


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def record(**changes) -> Measurement:
    fields = {
        "verified_at": "2026-01-01T00:00:00+00:00",
        "gpu": "h200",
        "model": "gpt2",
        "workload": "decode",
        "batch_size": 1,
        "seq_len": 512,
        "dtype": "fp32",
        "applied": "cuda-graphs",
        "predicted": (1.5, 2.0, 2.5),
        "measured": 2.4,
    }
    return Measurement(**{**fields, **changes})


def test_one_measurement_counts_a_third():
    corrected = correction([record()], "cuda-graphs", "decode")
    assert corrected.factor == pytest.approx(1.2 ** (1 / 3))
    assert (corrected.measurements, corrected.ratio) == (1, pytest.approx(1.2))
    assert "1.20 times what was predicted" in str(corrected)
    assert corrected.apply(Interval(1, 2, 3)).high == pytest.approx(3 * corrected.factor)


def test_several_runs_count_more_and_the_same_run_once():
    again = record(measured=3.0)
    other = record(model="llama-1b", measured=3.0)
    assert correction([record(), again], "cuda-graphs", "decode").factor == pytest.approx(1.5 ** (1 / 3))
    assert correction([again, other], "cuda-graphs", "decode").factor == pytest.approx(math.sqrt(1.5))


def test_a_correction_is_bounded():
    far = [record(model=str(i), measured=200.0) for i in range(20)]
    near = [record(model=str(i), measured=0.02) for i in range(20)]
    assert correction(far, "cuda-graphs", "decode").factor == pytest.approx(MOST)
    assert correction(near, "cuda-graphs", "decode").factor == pytest.approx(1 / MOST)


def test_other_optimizations_and_workloads_are_left():
    assert correction([record()], "compile", "decode") is None
    assert correction([record()], "cuda-graphs", "prefill") is None


def test_what_was_measured_here_changes_predictions():
    trace = "examples/traces/h200_gpt2_decode.json.gz"
    before, foretold = analyze(trace), predict(trace, "cuda-graphs")
    gain = {each.id: each.speedup for each in before.recommendations}["cuda-graphs"]
    corrections.add(record(gpu=before.source.gpu.id, predicted=(1.0, 2.0, 3.0), measured=1.6))
    after, now = analyze(trace), predict(trace, "cuda-graphs")
    change = 0.8 ** (1 / 3)
    advice = {each.id: each for each in after.recommendations}["cuda-graphs"]
    assert advice.speedup.expected == pytest.approx(gain.expected * change)
    assert any("Corrected by 0.93" in line for line in advice.caveats)
    assert now.speedup.expected == pytest.approx(foretold.speedup.expected * change)
