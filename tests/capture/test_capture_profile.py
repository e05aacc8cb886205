"""tracekit profile on the CPU, and what it refuses before it begins."""

import json

import pytest
from click.testing import CliRunner

import tracekit
from tracekit.analyzers.core import InputError, UnknownNameError
from tracekit.analyzers.trace import ranges
from tracekit.capture import complete
from tracekit.cli import main
from tracekit.run import Settings


def profile(*options):
    return CliRunner().invoke(main, ["profile", *map(str, options)])


@pytest.fixture(scope="module")
def generated(tmp_path_factory, tiny_config):
    """Return the folder of a recorded generation, the output, and the model's directory."""
    folder = tmp_path_factory.mktemp("profile")
    (folder / "tiny").mkdir()
    (folder / "tiny" / "config.json").write_text(json.dumps(tiny_config))
    options = ["--workload", "generate", "--seq-len", "8", "--new-tokens", "3", "--dtype", "bf16", "--steps", "2"]
    done = profile("--model", folder / "tiny", "--device", "cpu", *options, "-o", folder / "out")
    assert done.exit_code == 0, done.output
    return folder / "out", done


def test_files(generated):
    folder, done = generated
    written = {"trace.json.gz", "report.html", "analysis.json", "run.json"}
    assert {path.name for path in folder.iterdir()} == written
    assert str(folder) in done.stdout
    assert "tracekit analyze" in done.stdout
    assert "profiling 2 steps" in done.stderr


def test_the_trace_says_what_was_run(generated):
    info = tracekit.load(generated[0]).metadata.capture
    assert (info.source, info.device, info.gpu) == ("measured", "cpu", "")
    assert (info.model, info.workload, info.dtype, info.attention) == ("tiny", "generate", "bf16", "sdpa")
    assert (info.batch_size, info.seq_len, info.new_tokens, info.steps) == (1, 8, 3, 2)
    blocks = 2 * (12 * 32 * 32 + 13 * 32)
    assert info.parameters == (100 + 64) * 32 + blocks + 2 * 32
    assert info.weight_bytes == 2 * info.parameters
    assert 0 < info.latency.p10_us <= info.latency.median_us <= info.latency.p90_us
    assert info.phases["time_between_tokens"].samples == 2 * info.latency.samples
    assert info.phases["time_to_first_token"].median_us < info.latency.median_us


def test_the_trace_holds_the_steps_phases_and_modules_once(generated):
    names = tracekit.load(generated[0]).host["name"].astype(str)
    parsed_ranges = [each for each in map(ranges.parse, names) if each]
    assert sorted(path for kind, path, _ in parsed_ranges if kind == "step") == ["0", "1"]
    assert [path for kind, path, _ in parsed_ranges if kind == "phase"] == ["prefill", "decode", "decode"] * 2
    assert sum(found_one == ("module", "transformer.h.1.attn", "GPT2Attention") for found_one in parsed_ranges) == 6


def test_the_run_can_be_repeated_from_its_settings(generated):
    run = json.loads((generated[0] / "run.json").read_text())
    settings = Settings(**run["settings"])
    assert complete(settings) == settings
    assert set(run["versions"]) <= {"torch", "transformers", "cuda"}


def test_everything_has_an_op_and_a_layer(generated):
    coverage = json.loads((generated[0] / "analysis.json").read_text())["coverage"]
    assert coverage["op"] >= 0.99
    assert coverage["layer"] >= 0.9


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"model": "gpt2"}, "--gpu t4"),
        ({"model": "gpt2", "device": "cuda"}, "--device model"),
        ({"model": "gpt2", "gpu": "t4", "attention": "flash"}, "no flash attention"),
        ({"model": "gpt2", "gpu": "a100", "attention": "flash"}, "--dtype bf16"),
        ({"model": "bert", "gpu": "t4", "workload": "decode"}, "generates no tokens"),
    ],
)
def test_what_cannot_run_is_refused(options, says):
    with pytest.raises(InputError, match=says):
        complete(Settings(**options))


def test_an_unknown_gpu_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="a100"):
        complete(Settings(model="gpt2", gpu="a101"))


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({"model": "mistral-7b", "gpu": "h100"}, "bf16"),
        ({"model": "mistral-7b", "gpu": "t4"}, "fp16"),
        ({"model": "mistral-7b", "gpu": "t4", "dtype": "fp32"}, "fp32"),
        ({"model": "gpt2", "gpu": "h100"}, "fp32"),
    ],
)
def test_a_model_runs_in_the_type_it_is_published_in(options, dtype):
    assert complete(Settings(**options)).dtype == dtype


def test_the_folder_is_named_after_the_run(tiny_gpt2):
    assert (
        str(complete(Settings(model="mistral-7b", gpu="h100", workload="decode")).folder)
        == "runs/mistral-7b-h100-sxm-decode"
    )
    assert str(complete(Settings(model=tiny_gpt2, device="cpu")).folder) == "runs/tiny-gpt2-cpu-prefill"


def test_an_unwritable_folder_is_refused_before_the_run(tiny_gpt2, tmp_path):
    (tmp_path / "file").write_text("")
    done = profile("--model", tiny_gpt2, "--device", "cpu", "-o", tmp_path / "file" / "out")
    assert done.exit_code == 1
    assert "building" not in done.stderr


def test_a_run_on_the_cpu_names_no_gpu():
    with pytest.raises(InputError, match="cannot be projected"):
        complete(Settings(model="gpt2", device="cpu", gpu="t4"))
