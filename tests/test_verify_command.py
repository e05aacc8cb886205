"""tracekit verify on the CPU: what it measures, what it refuses, and what it writes into the run's folder."""

import json

import pytest
import torch
from click.testing import CliRunner
from tiny_models import write_model

import tracekit
from tracekit.advise import acceptance_of
from tracekit.advise.optimizations.speculative_decoding import tokens_a_pass
from tracekit.analyzers.core import InputError, Interval
from tracekit.analyzers.results import Verification, Verified
from tracekit.cli import main
from tracekit.measure import Draft, verify_run
from tracekit.run import joined


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify")
    model = write_model(folder / "llama", "llama")
    command = ["profile", "--model", str(model), "--workload", "decode", "--seq-len", "8", "--device", "cpu"]
    done = CliRunner().invoke(main, [*command, "--dtype", "fp32", "-o", str(folder / "run")])
    assert done.exit_code == 0, done.output
    return folder / "run"


@pytest.mark.usefixtures("same_process")
def test_measured_and_refused_stand_beside_each_other(run):
    names = "half-precision,cuda-graphs,speculative-decoding:0.5"
    done = CliRunner().invoke(main, ["verify", str(run), "--apply", names])
    assert done.exit_code == 0, done.output
    half, graphs, check = json.loads((run / "verify.json").read_text())["results"]
    assert half["measured"]["low"] <= half["measured"]["expected"] <= half["measured"]["high"]
    assert 0 < half["difference"]["relative"] < 0.05
    assert graphs["measured"] is None and "CUDA device" in graphs["error"]
    assert check["work_factor"] == pytest.approx(1.9375)
    assert any("not counting the time of a draft" in line for line in check["caveats"])
    (line,) = (line for line in done.stdout.splitlines() if "cuda-graphs" in line)
    assert line.startswith("cuda-graphs: not measured.") and "CUDA device" in line
    assert "measuring speculative-decoding:0.5 (3 of 3)" in done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= 120
    assert [each["id"] for each in json.loads((run / "analysis.json").read_text())["verified"]] == [
        "half-precision",
        "cuda-graphs",
        "speculative-decoding:0.5",
    ]


@pytest.mark.usefixtures("same_process")
def test_a_modelled_run_is_measured_on_the_cpu(tmp_path):
    model = write_model(tmp_path / "llama", "llama")
    modelled = tmp_path / "modelled"
    command = ["profile", "--model", str(model), "--seq-len", "8", "--gpu", "t4", "-o", str(modelled)]
    assert CliRunner().invoke(main, command).exit_code == 0
    done = CliRunner().invoke(main, ["verify", str(modelled), "--apply", "half-precision", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    (half,) = json.loads((modelled / "verify.json").read_text())["results"]
    assert half["measured"]["low"] > 0 and half["predicted"] is None


@pytest.mark.usefixtures("same_process")
def test_a_draft_model_is_measured_with_its_acceptance(run, tmp_path):
    smaller = write_model(tmp_path / "draft", "llama", {"num_hidden_layers": 1})
    other = write_model(tmp_path / "other", "llama", {"vocab_size": 90})
    (single,) = verify_run(run, ["half-precision"], wall_s=1).results
    (result,) = verify_run(run, draft=Draft(str(smaller)), wall_s=1).results
    assert result.id == "speculative-decoding" and not result.error
    assert 0 <= result.acceptance < 1
    gained = result.before.median_us / result.after.median_us
    assert result.measured.low <= gained * 1.3 and gained <= result.measured.high * 1.3
    assert result.before.median_us < 16 * single.before.median_us  # of one token, not of 64
    assert result.difference.agreement == 1.0  # greedy decoding gives the same text
    assert any("acceptance" in line and "passes of the large model" in line for line in result.caveats)
    assert any("--prompt FILE" in line for line in result.caveats)
    (refused,) = verify_run(run, draft=Draft(str(other)), wall_s=1).results
    assert "another vocabulary" in refused.error and "90" in refused.error
    with pytest.raises(InputError, match="no draft model is used"):
        verify_run(run, ["half-precision"], draft=Draft(str(smaller)))


def test_acceptance_follows_from_the_tokens_of_a_pass():
    for rate in (0.1, 0.5, 0.9):
        assert acceptance_of(tokens_a_pass(rate, 4), 4) == pytest.approx(rate)
    assert acceptance_of(1.0, 4) == 0.0
    assert acceptance_of(5.0, 4) < 1


@pytest.mark.parametrize(
    ("name", "hint"), [("half-precison", "half-precision"), ("sdpa:math", "cudnn, flash, efficient")]
)
def test_a_name_that_is_not_known_is_refused_before_anything_is_built(run, name, hint):
    before = (run / "verify.json").read_bytes() if (run / "verify.json").is_file() else b""
    done = CliRunner().invoke(main, ["verify", str(run), "--apply", f"half-precision,{name}"])
    assert done.exit_code == 1
    assert hint in done.stderr and "building" not in done.stderr
    assert ((run / "verify.json").read_bytes() if before else b"") == before


@pytest.mark.usefixtures("same_process")
def test_what_was_measured_is_kept_when_it_is_stopped_and_called_again(run):
    """It is stopped at the second of two optimizations; then a third is measured."""

    def say(line: str) -> None:
        if "(2 of 2)" in line:
            raise KeyboardInterrupt

    (run / "verify.json").unlink(missing_ok=True)
    with pytest.raises(KeyboardInterrupt):
        verify_run(run, ["half-precision", "sdpa"], say=say)
    (half,) = json.loads((run / "verify.json").read_text())["results"]
    assert half["id"] == "half-precision" and half["measured"]
    assert [each.id for each in verify_run(run, ["cuda-graphs"]).results] == ["cuda-graphs"]
    kept, graphs = json.loads((run / "verify.json").read_text())["results"]
    assert (kept, graphs["id"]) == (half, "cuda-graphs")


def verification(*names: str, versions: dict[str, str], **settings: object) -> Verification:
    results = tuple(Verified(name, name, None, Interval(1.0, 2.0, 3.0)) for name in names)
    return Verification("0.1.0", {"dtype": "fp32", **settings}, 0, "T4", versions, 1, "tokens", 0, results)


@pytest.mark.parametrize(
    ("versions", "settings", "ids"),
    [
        ({"torch": "2.11"}, {"output": "b"}, ["a", "b", "c"]),
        ({"torch": "2.11", "torchao": "0.18"}, {}, ["a", "b", "c"]),
        ({"torch": "2.12"}, {}, ["b", "c"]),
        ({"torch": "2.11"}, {"dtype": "fp16"}, ["b", "c"]),
    ],
)
def test_only_what_was_measured_in_the_same_way_stays(versions, settings, ids):
    earlier = verification("a", "b", versions={"torch": "2.11"}, output="a")
    merged = joined(earlier, verification("b", "c", versions=versions, **{"output": "a", **settings}))
    assert [each.id for each in merged.results] == ids
    assert joined(None, merged) == merged


def test_a_folder_without_a_run(tmp_path):
    done = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert done.exit_code == 1
    assert "is a folder without a trace.json.gz" in done.stderr
    (tmp_path / "trace.json.gz").touch()
    assert "run.json cannot be read" in CliRunner().invoke(main, ["verify", str(tmp_path)]).stderr


def test_a_model_of_ones_own_is_measured_and_left_as_it_is():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
    weights = model[0].weight.detach().clone()
    verified = tracekit.verify(model, {"input": torch.ones(2, 8)}, apply=["half-precision", "tf32"])
    half, tf32 = verified.results
    assert half.measured is not None and half.difference.relative < 0.05
    assert tf32.measured is None and "tensor cores" in tf32.error
    assert verified.unit == "steps"
    torch.testing.assert_close(model[0].weight, weights, rtol=0, atol=0)
