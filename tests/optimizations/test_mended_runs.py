"""Runs that were diagnosed, then fixed and measured: the gain lies in the interval that was predicted before."""

from pathlib import Path

import pytest

import tracekit

FOLDER = Path(__file__).parents[2] / "examples" / "traces" / "mended"


@pytest.mark.parametrize(
    ("trace", "optimization", "measured"),
    [
        ("h100_pad-vocab", "pad-shapes", 1.875),
        ("h100_pad-sequence", "pad-shapes", 1.308),
        ("h100_fell-back-layout", "fused-attention-fallback", 9.608),
        ("h100_fell-back-gqa", "fused-attention-fallback", 2.181),
    ],
)
def test_the_measured_gain_was_predicted(trace: str, optimization: str, measured: float) -> None:
    analysis = tracekit.analyze(FOLDER / f"{trace}.json.gz")
    advice = next(each for each in analysis.recommendations if each.id == optimization)
    assert advice.speedup.low <= measured <= advice.speedup.high


def test_a_fallback_is_the_first_advice() -> None:
    analysis = tracekit.analyze(FOLDER / "h100_fell-back-layout.json.gz")
    assert analysis.recommendations[0].id == analysis.plan[0].name == "fused-attention-fallback"


def test_half_precision_brings_the_fused_kernel_where_only_32_bits_fall_back() -> None:
    analysis = tracekit.analyze(FOLDER / "h100_fell-back-gqa.json.gz")
    gains = {each.id: each.speedup.expected for each in analysis.recommendations}
    assert next(iter(gains)) == "half-precision"
    assert gains["half-precision"] > 2 * gains["fused-attention-fallback"] > 2
    assert "fused-attention-fallback" not in [step.name for step in analysis.plan]


def test_packed_weights_do_not_mend_attention_that_fell_back() -> None:
    analysis = tracekit.analyze(FOLDER / "h100_fell-back-layout.json.gz")
    gains = {each.id: each.speedup for each in analysis.considered if each.speedup}
    assert all(gains[name].expected < 1.1 for name in ("nf4", "llm-int8", "int8-weight-only"))
