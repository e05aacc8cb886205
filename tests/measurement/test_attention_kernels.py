"""Attention runs on the requested kernels, or not at all. PyTorch on a CPU has flash kernels, and of cuDNN and
memory-efficient ones none."""

import warnings

import pytest
import torch
from tiny_models import write_model

from tracekit.advise import parse
from tracekit.analyzers.core import InputError, TracekitError
from tracekit.apply import Subject
from tracekit.capture import FLASH, complete, models, numerics
from tracekit.capture.precision import only, refusal_told
from tracekit.measure import configuration
from tracekit.measure.expectations import Expected
from tracekit.measure.side_by_side import warm
from tracekit.measure.trial import verify
from tracekit.run import Settings

WARNINGS = (
    "Memory efficient kernel not used because: (Triggered internally at sdp_utils.cpp:901.)",
    "Memory Efficient attention has been runtime disabled. (Triggered internally at sdp_utils_cpp.h:558.)",
    "Flash attention kernel not used because: (Triggered internally at sdp_utils.cpp:903.)",
    "Expected query, key and value to all be of dtype: {Half, BFloat16}. (Triggered internally at sdp_utils.cpp:97.)",
    "CuDNN attention kernel not used because: (Triggered internally at sdp_utils.cpp:905.)",
    "CuDNN attention has been runtime disabled. (Triggered internally at sdp_utils.cpp:511.)",
)
"""PyTorch's warnings on a GPU when only flash attention is allowed, which does not support fp32."""


@pytest.fixture
def subject(tmp_path):
    def build(attention: str) -> Subject:
        write_model(tmp_path, "gpt2")
        settings = complete(
            Settings(model=str(tmp_path), device="cpu", dtype="fp32", attention=attention, seq_len=16)  # type: ignore[arg-type]
        )
        return Subject(model=models.build_for(settings), settings=settings)

    return build


def allowed() -> list[str]:
    names = ("flash", "mem_efficient", "cudnn", "math")
    return [name for name in names if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_named_backend_is_the_only_one_allowed(subject, attention):
    changed = parse("sdpa:flash").apply(subject(attention))
    assert changed.model.config._attn_implementation == "sdpa"
    with changed.numerics():
        assert allowed() == ["flash"]
    assert "math" in allowed()


def test_none_is_named_by_sdpa_alone(subject):
    with parse("sdpa").apply(subject("eager")).numerics():
        assert "math" in allowed()
    with pytest.raises(TracekitError, match="already fused"):
        parse("sdpa").apply(subject("sdpa"))


@pytest.mark.parametrize(("name", "words"), [("efficient", "Memory-efficient"), ("cudnn", "cuDNN")])
def test_what_the_backend_cannot_run_is_not_measured(subject, name, words):
    verified = verify(warm(subject("eager")), f"sdpa:{name}", Expected(None, None))
    assert verified.measured is None
    assert f"{words} attention cannot run" in verified.error
    assert "No viable backend" in verified.error


def test_what_the_backend_can_run_is_measured(subject):
    verified = verify(warm(subject("eager")), "sdpa:flash", Expected(None, None), budget_s=0.1)
    assert verified.error == ""
    assert verified.measured is not None


def test_the_flash_attn_package_is_not_exchanged_for_another(subject):
    verified = verify(warm(subject("sdpa")), "sdpa:flash-attention-2", Expected(None, None))
    assert verified.measured is None
    assert "FlashAttention2" in verified.error


def test_bench_and_profile_allow_the_same(subject):
    with configuration("flash").apply(subject("sdpa")).numerics():
        assert allowed() == ["flash"]
    assert parse("sdpa:flash").apply(subject("sdpa")).backend == subject("flash").backend == FLASH
    with numerics("fp32", FLASH):
        assert allowed() == ["flash"]


def test_the_reason_is_torchs_own_for_that_backend():
    with (
        pytest.raises(InputError) as raised,
        warnings.catch_warnings(),
        refusal_told(FLASH, "gpt2 in fp32"),
    ):
        for text in WARNINGS:
            warnings.warn(text, stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.")
    assert raised.value.what == "Flash attention cannot run gpt2 in fp32 here."
    assert raised.value.why == "Expected query, key and value to all be of dtype: {Half, BFloat16}."


def test_other_failures_stay_what_they_are():
    with pytest.raises(RuntimeError, match="shape"), refusal_told(FLASH, ""):
        torch.zeros(2, 3).view(torch.Size([4]))
    with pytest.raises(RuntimeError, match="viable"), only("CUDNN_ATTENTION"):
        torch.nn.functional.scaled_dot_product_attention(*[torch.zeros(1, 1, 2, 8)] * 3)
