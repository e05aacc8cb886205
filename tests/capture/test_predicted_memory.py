"""Compares predicted memory with that of a modelled run with the other batch size or dtype."""

from pathlib import Path

import pytest
from tiny_models import settings_of

import tracekit
from tracekit.profiling.profiled_run import capture
from tracekit.run import silent

pytestmark = pytest.mark.usefixtures("started_once")
SIZES = {"n_embd": 128, "n_head": 4, "vocab_size": 1000}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    """Return a function that models a run of a small GPT-2 and returns its folder."""

    def recorded(workload: str, batch: int, dtype: str) -> Path:
        folder = tmp_path_factory.mktemp("run")
        asked = {"workload": workload, "batch_size": batch, "dtype": dtype, "output": str(folder / "out"), "steps": 1}
        capture(settings_of("gpt2", folder, SIZES, **asked), silent)
        return folder / "out"

    return recorded


def peak(folder: Path) -> int:
    return tracekit.load(folder).metadata.capture.peak_memory_bytes


@pytest.mark.parametrize(("workload", "within"), [("prefill", 0.03), ("decode", 0.01), ("train", 0.005)])
def test_a_batch_and_half_precision_take_what_is_predicted(run, workload, within):
    start = run(workload, 1, "fp32")
    halved = tracekit.predict(start, "half-precision").memory
    assert halved.peak == pytest.approx(peak(run(workload, 1, "bf16")), rel=within)
    both = tracekit.predict(start, "half-precision", batch_size=16)
    assert both.memory.peak == pytest.approx(peak(run(workload, 16, "bf16")), rel=within)
    enlarged = tracekit.predict(start, "batching:16").memory
    assert enlarged.peak == pytest.approx(peak(run(workload, 16, "fp32")), rel=within)
    assert enlarged.weights == 2 * halved.weights


def test_the_parts_of_a_decode_are_counted(run):
    held = tracekit.predict(run("decode", 2, "fp32"), "cuda-graphs").baseline.memory
    # Layers, keys and values, sequences, tokens, width, bytes; one token more than the cache held.
    assert held.kv_cache == 2 * 2 * 2 * 17 * 128 * 4
    assert held.weights == 4 * (1000 * 128 + 64 * 128 + 2 * (12 * 128 * 128 + 13 * 128) + 2 * 128)


@pytest.mark.parametrize(
    ("model", "attention", "within"),
    [("bert", "sdpa", 0.01), ("llama", "eager", 0.01), ("t5", "eager", 0.08), ("vit", "sdpa", 0.02)],
)
def test_training_at_another_batch_takes_what_is_predicted(model, attention, within, tmp_path):
    folders = []
    for batch in (1, 16):
        asked = {"workload": "train", "batch_size": batch, "attention": attention, "steps": 1}
        folders.append(tmp_path / str(batch))
        length = {} if model == "vit" else {"seq_len": 64}
        capture(settings_of(model, tmp_path, output=str(folders[-1]), **asked, **length), silent)
    start, there = folders
    assert tracekit.predict(start, "batching:16").memory.peak == pytest.approx(peak(there), rel=within)


def test_a_loss_that_is_not_causal_is_taken_in_16_bits(tmp_path):
    folders = {dtype: tmp_path / dtype for dtype in ("fp32", "bf16")}
    for dtype, folder in folders.items():
        asked = {
            "workload": "train",
            "batch_size": 16,
            "seq_len": 64,
            "dtype": dtype,
            "output": str(folder),
            "steps": 1,
        }
        capture(settings_of("bert", tmp_path, **asked), silent)
    after = tracekit.predict(folders["fp32"], "half-precision").memory
    assert after.peak == pytest.approx(peak(folders["bf16"]), rel=0.01)
