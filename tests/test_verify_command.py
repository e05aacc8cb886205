"""tracekit verify on the CPU: what is measured, what is refused, and what it leaves in the run's folder."""

import json

import pytest
import torch
from click.testing import CliRunner
from tiny_models import CONFIGS

import tracekit
from tracekit.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    model = folder / "llama"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "llama", **CONFIGS["llama"]}))
    command = ["profile", "--model", str(model), "--workload", "decode", "--seq-len", "8", "--device", "cpu"]
    done = CliRunner().invoke(main, [*command, "--dtype", "fp32", "-o", str(folder / "run")])
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_measured_and_refused_stand_beside_each_other(run):
    names = "half-precision,cuda-graphs,speculative-decoding:0.5"
    done = CliRunner().invoke(main, ["verify", str(run), "--apply", names])
    assert done.exit_code == 0, done.output
    half, graphs, check = json.loads((run / "verify.json").read_text())["results"]
    assert half["measured"]["low"] <= half["measured"]["expected"] <= half["measured"]["high"]
    assert 0 < half["difference"]["relative"] < 0.05
    assert graphs["measured"] is None and "CUDA device" in graphs["error"]
    assert check["work_factor"] == pytest.approx(1.9375)
    assert any("before the time that a draft" in line for line in check["caveats"])
    assert "cuda-graphs: not measured." in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 120
    assert [each["id"] for each in json.loads((run / "analysis.json").read_text())["verified"]] == [
        "half-precision",
        "cuda-graphs",
        "speculative-decoding:0.5",
    ]


def test_a_name_that_is_not_known(run):
    done = CliRunner().invoke(main, ["verify", str(run), "--apply", "half-precison"])
    assert done.exit_code == 1
    assert "half-precision" in done.stderr


def test_a_folder_without_a_run(tmp_path):
    done = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert done.exit_code == 1
    assert "is not a run's folder" in done.stderr


def test_a_model_of_ones_own_is_measured_and_left_as_it_is():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    weights = model[0].weight.detach().clone()
    found = tracekit.verify(model, {"input": torch.ones(2, 8)}, apply=["half-precision", "tf32"])
    half, tf32 = found.results
    assert half.measured is not None and half.difference.relative < 0.05
    assert tf32.measured is None and "tensor cores" in tf32.error
    assert found.unit == "steps"
    torch.testing.assert_close(model[0].weight, weights, rtol=0, atol=0)
