"""GPUs that a user describes in a file."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracekit
from tracekit.analyzers.core import InputError, UnknownNameError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.cost.hardware.gpu_file import described_gpu, read
from tracekit.cli import main

SECTION = """
[my-gpu]
compute_capability = [8, 9]
sms = 142
clock_ghz = 2.5
memory_gb = 48
bandwidth_gbs = 864
l2_mb = 96
tdp_w = 350
peaks_tflops = { fp32 = 91.6, fp16 = 362, bf16 = 362, fp8 = 733 }
"""
SAMPLE = Path(__file__).parents[2] / "examples" / "traces"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(SECTION)
    return path


def test_a_data_sheet_is_enough(file: Path) -> None:
    (gpu,) = read(file)
    assert (gpu.id, gpu.name, gpu.architecture, gpu.memory_bytes) == ("my-gpu", "my-gpu", "ada", 48 * 10**9)
    assert gpu.basis.startswith("estimated from its data sheet")
    assert 0.3 < gpu.sustained["fp16"] <= 0.85 and gpu.supports("flash-attention")
    assert hardware.selected(None, file) == hardware.selected("my-gpu", file) == gpu
    assert hardware.selected("t4", file) == hardware.find("t4")
    assert hardware.selected(None, None) is None


def test_measured_numbers_replace_estimates(file: Path) -> None:
    file.write_text(SECTION + 'sustained = { fp16 = 0.5 }\nhost_op_us = [10, 12, 14]\nname = "Mine"')
    (gpu,) = read(file)
    assert gpu.sustained_flops("bf16") == 181e12
    assert (gpu.host_op_us.expected, gpu.name) == (12, "Mine")
    assert "sustained, host_op_us as described by the user" in gpu.basis


def test_a_capture_carries_the_row_of_such_a_gpu(file: Path) -> None:
    (gpu,) = read(file)
    assert described_gpu(gpu.id, hardware.row_for_capture(gpu), "a trace") == gpu
    assert hardware.row_for_capture(hardware.find("t4")) == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("sms = 142", ""), "sms is missing"),
        (("sms = 142", "sms = 14.5"), "sms must be a whole number"),
        (("sms = 142", "sm = 142"), "'sm' is not a field of a GPU. Nearest: sms"),
        (("tdp_w = 350", "tdp_w = -1"), "tdp_w must be from 5"),
        (("tdp_w = 350", "tdp_w = nan"), "tdp_w must be from 5"),
        (("tdp_w = 350", f"tdp_w = 1{400 * '0'}"), "tdp_w must be from 5"),
        (("tdp_w = 350", 'tdp_w = "x"'), "tdp_w must be a number"),
        (("fp32 = 91.6, ", ""), "peaks_tflops has no fp32"),
        (("fp8 = 733", "fp9 = 733"), "'fp9' is not a precision"),
        (("[8, 9]", "[8.9]"), "compute_capability must be two whole numbers"),
        (("[my-gpu]", "[t4]"), "is a GPU that tracekit knows"),
        (("[my-gpu]", "["), "cannot be read. It is damaged"),
        ((SECTION, ""), "describes no GPU"),
        ((SECTION, "a = 1"), "not a section that describes a GPU"),
    ],
)
def test_what_is_wrong_is_said(file: Path, change: tuple[str, str], told: str) -> None:
    file.write_text(SECTION.replace(*change))
    with pytest.raises(InputError) as caught:
        read(file)
    assert told in str(caught.value)


def test_nested_values_of_any_depth_and_files_of_any_size_are_refused(file: Path) -> None:
    file.write_text(SECTION + f"deep = {'[' * 100_000}")
    with pytest.raises(InputError, match=r"mine\.toml cannot be read\. It is damaged"):
        read(file)
    file.write_text(SECTION + "#" * (1 << 20))
    with pytest.raises(InputError, match="more than 1,048,576 bytes"):
        read(file)


def test_one_of_several_must_be_named(file: Path) -> None:
    file.write_text(SECTION + SECTION.replace("my-gpu", "other"))
    with pytest.raises(InputError, match="Select one with --gpu"):
        hardware.selected(None, file)
    with pytest.raises(UnknownNameError, match="other"):
        hardware.selected("othr", file)


def test_commands_take_it(file: Path) -> None:
    trace = str(next(SAMPLE.glob("*.json.gz")))
    ran = CliRunner().invoke(main, ["predict", trace, "--gpu-file", str(file), "--format", "json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["gpu"] == "my-gpu"
    assert "estimated from its data sheet" in ran.stdout
    analysis = tracekit.analyze(trace, gpu_file=file)
    assert analysis.projection is not None and analysis.projection.gpu.id == "my-gpu"
    refused = CliRunner().invoke(main, ["analyze", trace, "--gpu-file", str(file.parent / "none.toml")])
    assert refused.exit_code == 1 and "cannot be read" in refused.stderr
