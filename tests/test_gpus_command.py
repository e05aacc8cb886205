"""tracekit gpus, as a table and as data."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from tracekit.analyzers.cost import all_gpus
from tracekit.cli import main


def _run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["gpus", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_holds_every_gpu_with_units_in_the_keys() -> None:
    rows = {row["id"]: row for row in json.loads(_run("--format", "json"))}
    assert list(rows) == [gpu.id for gpu in all_gpus()]
    l4 = rows["l4"]
    assert (l4["bandwidth_gb_per_s"], l4["sms"], l4["compute_capability"]) == (300, 58, "8.9")
    assert l4["peak_tflops"] == {
        "fp64": 0.47,
        "fp32": 30.3,
        "tf32": 60,
        "fp16": 121,
        "bf16": 121,
        "fp8": 242,
        "int8": 242,
        "int4": 485,
    }
    assert "max-autotune-gemm" not in l4["features"] and "flash-attention" in l4["features"]
    assert rows["h100-sxm"]["aliases"] == ["h100"]
    assert rows["t4"]["host_op_us"] == [32, 48, 62]
    assert rows["mi300x"]["compute_capability"] is None
    assert all(row["source"] and row["sustained_source"] for row in rows.values())


def test_csv_has_one_cell_a_value() -> None:
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(_run("--format", "csv")))}
    assert len(rows) == len(all_gpus())
    assert rows["t4"]["peak_fp16_tflops"] == "65"
    assert rows["t4"]["peak_bf16_tflops"] == ""
    assert rows["v100-sxm"]["driver_names"].split(";")[0] == "Tesla V100-SXM2-16GB"


@pytest.mark.parametrize("arguments", [(), ("--format", "text")])
def test_text_is_a_table_with_a_dash_for_missing_units(arguments: tuple[str, ...]) -> None:
    lines = _run(*arguments).splitlines()
    row = next(line.split() for line in lines if line.startswith("t4 "))
    assert row == ["t4", "turing", "7.5", "40", "16", "320", "8.1", "-", "65", "-", "-", "130", "70"]
    assert "a100 is a100-80gb-sxm" in lines[-2]
    assert lines[-1] == "Calibrated on this machine: none; tracekit calibrate measures it."


def test_unknown_format_is_a_usage_error() -> None:
    assert CliRunner().invoke(main, ["gpus", "--format", "xml"]).exit_code == 2
