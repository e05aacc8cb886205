"""Batches of serving engines as steps and phases, by names that the engines' sources (serving.py says which) can write;
what they did write is read in test_serving_samples."""

import pytest
from handmade import Handmade

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import serving_phase

DETAILED = "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)"


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_context_0(0)_generation_1(1)", "decode"),
        ("execute_context_2(1024)_generation_0(0)", "prefill"),
        ("execute_context_1(512)_generation_7(7)", "mixed"),
        ("execute_context_0(0)_generation_0(0)", "idle"),
        (DETAILED, "mixed"),
        ("execute_new_1_cached_0", "prefill"),
        ("execute_new_0_cached_64", "decode"),
        ("execute_new_2_cached_3", "mixed"),
        ("step[EXTEND bs=2 toks=14721]", "prefill"),
        ("step[DECODE bs=64]", "decode"),
        ("step[DECODE bs=64 g_sq=64 g_sk=4096]", "decode"),
        ("step[MIXED bs=2]", "mixed"),
        ("step[TARGET_VERIFY bs=8]", "verify"),
        ("step[DRAFT_EXTEND_V2 bs=8]", "draft"),
        ("step[VERIFY bs=8 g_sq=32 g_sqsq=128 g_sqsk=4096 g_sk=1024 forward_id=7]", "verify"),
        ("step[DRAFT bs=8]", "draft"),
        ("step[IDLE bs=0]", "idle"),
        ("step[DLLM_EXTEND bs=1]", "dllm extend"),
    ],
)
def test_what_a_batch_does(name, phase):
    assert serving_phase(name) == phase


@pytest.mark.parametrize(
    "name", ["step[0]", "step 3", "execute_context_menu", "execute_model", "gpu_model_runner: forward", "step[decode]"]
)
def test_other_ranges_are_no_batches(name):
    assert serving_phase(name) is None


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        ("execute_context_1(128)_generation_0(0)", "execute_context_0(0)_generation_1(1)"),
        ("step[EXTEND bs=1 toks=128]", "step[DECODE bs=1]"),
    ],
    ids=["vLLM", "SGLang"],
)
def test_batches_are_steps_and_phases_but_no_layers(prefill, decode):
    made = Handmade().host("range", prefill, 0, 100).host("range", "gpu_model_runner: forward", 10, 50)
    made.host("range", decode, 200, 40).host("range", decode, 300, 40)
    made.launched("a", 20, 30, 7).launched("b", 210, 220, 3).launched("c", 310, 320, 5)
    analysis = analyze(made.trace())
    assert analysis.work["phase"].tolist() == ["prefill", "decode", "decode"]
    assert analysis.work["step"].tolist() == [0, 1, 2]
    phases = analysis.phases.set_index("name")
    assert phases["calls"].to_dict() == {"prefill": 1, "decode": 2}
    assert phases["busy_ns"].to_dict() == {"prefill": 7000, "decode": 8000}
    assert analysis.timeline.steps["wall_ns"].tolist() == [100_000, 40_000, 40_000]
    assert analysis.layers["path"].tolist() == ["gpu_model_runner: forward", "(no layer)"]


def test_tracekit_s_own_phases_come_first():
    made = Handmade().host("range", "phase: decode", 0, 100).host("range", "step[EXTEND bs=1 toks=8]", 10, 20)
    assert analyze(made.launched("k", 15, 30, 5).trace()).work["phase"].tolist() == ["decode"]
