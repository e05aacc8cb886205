"""Sweeps: the grid, its crossovers, and the files that are written."""

import csv
import io

import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from tiny_models import write_model

from tracekit.analyzers.core import InputError, UnknownNameError
from tracekit.analyzers.predict import SWEEP, crossovers
from tracekit.cli import main
from tracekit.measure import grid, sweep, sweeping
from tracekit.reports.document import render
from tracekit.reports.measure import sentences, sweep_document
from tracekit.run import Settings


def rows(apply, gains, idle=0.0, largest=24, length=512, refused="", source="modelled"):
    batches = [1, 2, 4, 8][: len(gains)]
    return pd.DataFrame(
        {
            "gpu": "t4",
            "batch_size": batches,
            "seq_len": length,
            "apply": apply,
            "source": source,
            "latency_ns": [1e6 * batch / gain for batch, gain in zip(batches, gains, strict=True)],
            "latency_low_ns": 1e6,
            "latency_high_ns": 1e7,
            "rate": 1000.0,
            "speedup": gains,
            "speedup_low": gains,
            "speedup_high": gains,
            "memory_bytes": 1e9,
            "fits": True,
            "idle_share": idle,
            "largest_batch": largest,
            "refused": refused,
        }
    )


def table(*parts):
    joined = pd.concat(parts, ignore_index=True)
    return SWEEP.frame({column.name: joined[column.name] for column in SWEEP.columns})


def test_crossovers_along_the_batch():
    plain = rows("none", [1.0] * 4, idle=[0.9, 0.5, 0.2, 0.01])
    int8, graphs = rows("int8", [0.8, 0.9, 1.1, 1.5]), rows("cuda-graphs", [3.0, 2.0, 1.01, 1.0])
    steady, wavering = rows("sdpa", [1.2] * 4), rows("compile", [1.2, 0.9, 1.2, 0.9])
    points = [
        (each.apply, each.kind, each.axis, each.at) for each in crossovers(table(plain, int8, graphs, steady, wavering))
    ]
    assert points == [
        ("none", "fits up to", "batch_size", 24),
        ("none", "host up to", "batch_size", 8),
        ("int8", "pays from", "batch_size", 4),
        ("cuda-graphs", "pays up to", "batch_size", 2),
    ]


def test_crossovers_along_the_length_and_refusals_in_words():
    parts = [rows("none", [1.0], largest=0, length=length) for length in (128, 1024)]
    parts += [rows("sdpa", [gain], length=length) for gain, length in ((1.0, 128), (1.4, 1024))]
    parts += [rows("nf4", [float("nan")], length=128, refused="It has no products.")]
    said = sentences(table(*parts))
    assert "Not even batch 1 fits on t4 at 128 tokens." in said
    assert "sdpa pays from 1,024 tokens at batch 1 on t4 (1.40× there)." in said
    assert "nf4 cannot be applied on t4: It has no products." in said


def test_measured_points_stand_beside_their_predictions():
    parts = [rows("none", [1.0] * 4), rows("compile", [1.0, 1.0, 1.3, 1.3])]
    seen = [rows("none", [1.0] * 4, source="measured"), rows("compile", [1.0, 1.2, 1.3, 1.4], source="measured")]
    late = rows("int8", [float("nan")], source="measured", refused="The time limit was reached.")
    said = sentences(table(*parts, *seen, late))
    assert "compile pays from batch 4 at 512 tokens on t4 (1.30× there)." in said
    assert "compile pays from batch 2 at 512 tokens on t4 (1.20×, measured there)." in said
    assert any("0.833 to 1.00 times the predicted time. 2 of 4 measured speed-ups" in line for line in said)
    assert "int8 was not measured on t4: The time limit was reached." in said
    assert "nothing was measured" not in render(sweep_document(table(*parts, *seen), "model"), "text")
    pages = [render(sweep_document(table(*each), "model"), "html") for each in (parts, (*parts, *seen))]
    assert ["dashed: measured" in page for page in pages] == [False, True]
    assert 'class="line-1 measured"' in pages[1] and "compile, measured: " in pages[1]


def test_names_in_a_page_are_escaped():
    points = table(rows("none", [1.0, 1.0]), rows("<script>", [1.0, 2.0]))
    page = render(sweep_document(points, "<b>model</b>"), "html")
    assert page.count("<script>") == 2 and "<b>model" not in page
    assert "&lt;script&gt;" in page


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    model = str(write_model(folder / "tiny", "gpt2"))
    apply = ("half-precision", "sdpa", "gradient-checkpointing")
    axes = {"gpu": ("t4", "l4"), "batch_size": (1, 4), "seq_len": (8, 32), "apply": apply}
    return sweep(model, **axes, attention="eager", output=folder / "out"), folder / "out"


def test_a_sweep_has_every_point(tiny):
    points, _ = tiny
    assert len(points) == 2 * 2 * 2 * 4
    assert points["gpu"].tolist() == ["t4"] * 16 + ["l4"] * 16
    plain = points[points["apply"] == "none"]
    assert plain["speedup"].tolist() == pytest.approx([1.0] * 8)
    assert (plain["latency_low_ns"] <= plain["latency_ns"]).all()
    batch = plain.set_index(["gpu", "seq_len", "batch_size"])
    assert batch.loc[("t4", 32, 4), "rate"] > 2 * batch.loc[("t4", 32, 1), "rate"]
    refused = points[points["apply"] == "gradient-checkpointing"]
    assert (refused["refused"] != "").all() and refused["speedup"].isna().all()
    assert points[points["apply"] == "sdpa"]["refused"].eq("").all()


def test_a_sweep_leaves_a_page_and_a_table(tiny):
    points, folder = tiny
    assert len(list(csv.DictReader(io.StringIO((folder / "grid.csv").read_text())))) == len(points)
    assert "gradient-checkpointing cannot be applied on t4" in (folder / "grid.html").read_text()
    assert "Modelled" in render(sweep_document(points, "tiny"), "text")


@pytest.mark.usefixtures("same_process")
def test_points_are_measured_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "BUDGET_S", 1.0)  # short blocks, rather than a limit that a busy machine reaches
    model = str(write_model(tmp_path / "tiny", "gpt2"))
    apply = ("half-precision", "cuda-graphs")
    points = sweep(model, batch_size=2, seq_len=8, apply=apply, measure=True, device="cpu", max_seconds=300)
    assert points["gpu"].tolist() == ["cpu"] * 3 and (points["source"] == "measured").all()
    assert points["apply"].tolist() == ["none", *apply]
    timed = points[points["refused"] == ""]
    assert timed["apply"].tolist() == ["none", "half-precision"]
    assert (timed["latency_low_ns"] <= timed["latency_ns"]).all() and (timed["speedup_low"] > 0).all()
    assert timed["rate"].tolist() == pytest.approx((8e9 * 2 / timed["latency_ns"]).tolist())
    assert "CUDA device" in points["refused"].iloc[2]
    late = sweep(model, batch_size=1, seq_len=8, apply="none", measure=True, device="cpu", max_seconds=0)
    assert late["refused"].tolist() == ["The time limit was reached."]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to measure on")
def test_without_a_gpu_nothing_can_be_measured(tmp_path):
    options = ["bench", "--model", "gpt2", "--measure", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, options)
    assert done.exit_code == 1 and "--device cpu" in done.output and not (tmp_path / "out").exists()
    for wrong in (["--device", "cpu"], ["--panels"], ["--eval", "some.txt"]):
        assert CliRunner().invoke(main, [*options[:3], "--gpu", "t4", *wrong]).exit_code == 2


def test_axes_are_checked(tmp_path):
    with pytest.raises(UnknownNameError):
        grid(Settings(model="gpt2"), ["t5"], [1], [0], ["none"])
    with pytest.raises(UnknownNameError):
        grid(Settings(model="gpt2"), ["t4"], [1], [0], ["faster"])
    with pytest.raises(InputError, match="may have up to"):
        grid(Settings(model="gpt2"), ["t4"], range(1, 3000), [0], ["none"])
    options = ["bench", "--model", "gpt2", "--gpu", "t4", "--batch-size", "1,x", "-o", str(tmp_path)]
    assert CliRunner().invoke(main, options).exit_code == 2
