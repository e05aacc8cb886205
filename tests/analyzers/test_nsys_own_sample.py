"""What Nsight Systems recorded of `tracekit profile` on a CPU and on a GPU: our ranges, through NVTX."""

import gzip
import shutil
import sqlite3
from pathlib import Path

import pytest

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import Host
from tracekit.analyzers.attribute.layers import find_layers
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load

SAMPLE = Path(__file__).parents[2] / "examples/nsys/cpu_distilgpt2_nvtx.sqlite.gz"
ON_A_GPU = SAMPLE.with_name("h100_gpt2_train_nvtx.sqlite.gz")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return (name, duration) of every range in order, read with SQLite."""
    path = tmp_path_factory.mktemp("nsys") / "sample.sqlite"
    path.write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    of_range = "FROM NVTX_EVENTS, StringIds WHERE id = textId AND eventType = 59"
    with sqlite3.connect(path) as connection:
        ranges = connection.execute(f"SELECT value, end - start {of_range} ORDER BY start, -end").fetchall()
    connection.close()
    return ranges


def test_every_range_is_there(recorded):
    host = load(SAMPLE).host
    assert list(zip(host["name"], host["duration_ns"], strict=True)) == recorded
    assert len(recorded) == 242 and set(host["category"]) == {"range"}


def test_they_give_the_layers_of_the_model():
    layers = find_layers(Host(load(SAMPLE).host))
    assert layers.source == "tracekit ranges"
    types = dict(zip(layers.tree.paths, layers.tree.types, strict=True))
    assert types["transformer.h.5.attn.c_attn"] == "Conv1D" and types["lm_head"] == "Linear"
    assert sum(kind == "GPT2Block" for kind in types.values()) == 6
    above = dict(zip(layers.tree.paths, layers.tree.parents, strict=True))
    assert layers.tree.paths[above["transformer.h.5.attn.c_attn"]] == "transformer.h.5.attn"


def test_without_device_work_it_says_what_to_record():
    with pytest.raises(InputError, match="no work") as caught:
        analyze(load(SAMPLE))
    assert "-t cuda,nvtx" in caught.value.hint


@pytest.mark.skipif(not shutil.which("nsys"), reason="needs Nsight Systems")
def test_nsys_itself_is_asked_for_a_report(tmp_path):
    (tmp_path / "no.nsys-rep").write_bytes(b"not a report")
    with pytest.raises(InputError, match="nsys could not export"):
        load(tmp_path / "no.nsys-rep")


def test_training_on_a_gpu_has_layers_for_all_but_a_twentieth_of_its_time():
    """Backward ops have the range of their module; the rest is the optimizer's and sums of gradients."""
    analysis = analyze(load(ON_A_GPU))
    assert analysis.coverage.layer >= 0.95 and len(analysis.steps) == 2


def test_the_sample_names_no_machine():
    with gzip.open(ON_A_GPU) as file:
        content = file.read()
    assert not any(word in content for word in (b"/home", b"/root", b"PATH=", b"hostname"))
