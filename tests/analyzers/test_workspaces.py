"""Compares the peak memory predicted from a run's trace with what `tracekit verify` measured on an H200."""

import gzip
import json
from pathlib import Path

import pytest

import tracekit
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import workspace_bytes

pytestmark = pytest.mark.usefixtures("started_once")
ROOT = Path(__file__).parents[2]
APPLIED = ("batching", "half-precision", "nf4", "llm-int8")
WITHIN = 0.12


def measured(model):
    answer = json.loads(gzip.decompress((ROOT / "benchmarks/data/h200_verify.json.gz").read_bytes()))[f"{model}-decode"]
    return {each["id"]: each["peak_memory_bytes"] for each in answer["results"] if each["peak_memory_bytes"]}


@pytest.mark.parametrize("model", ["gpt2", "llama-1b", "mistral-7b"])
def test_the_peak_with_an_optimization_is_as_predicted(model):
    peaks = measured(model)
    for name in sorted(peaks.keys() & set(APPLIED)):
        predicted = tracekit.predict(ROOT / f"examples/traces/h200_{model}_decode.json.gz", name).memory
        assert predicted.peak == pytest.approx(peaks[name], rel=WITHIN), name


def test_larger_from_hopper_on_and_unknown_elsewhere():
    assert workspace_bytes(hardware.find("h200")) == 32 * 2**20
    assert workspace_bytes(hardware.find("a100")) == workspace_bytes(hardware.find("t4")) == 8.125 * 2**20
    assert workspace_bytes(hardware.find("mi300x")) == 0
