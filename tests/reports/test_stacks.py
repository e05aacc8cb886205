"""Stacks for speedscope and flame graphs."""

import json
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from hostile import hostile
from msgspec.structs import replace
from tiny_trace import write_tiny_trace

from tracekit.analyzers.results import Analysis
from tracekit.cli import main
from tracekit.reports.answer.export import to_collapsed, to_speedscope

COUNT = {"type": "integer", "minimum": 0}
PROFILE = {
    "type": "object",
    "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
    "properties": {
        "type": {"const": "sampled"},
        "unit": {"enum": ["bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"]},
        "startValue": {"type": "number"},
        "endValue": {"type": "number"},
        "samples": {"type": "array", "items": {"type": "array", "items": COUNT}},
        "weights": {"type": "array", "items": {"type": "number"}},
    },
}
NAMED = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
SPEEDSCOPE = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {"frames": {"type": "array", "items": NAMED}},
        },
        "profiles": {"type": "array", "minItems": 1, "items": PROFILE},
    },
}
"""What speedscope's schema says of a sampled profile."""


@pytest.fixture(params=["named", "hostile", "empty"])
def each(request: pytest.FixtureRequest, analysis: Analysis) -> Analysis:
    if request.param == "empty":
        return replace(analysis, work=analysis.work.iloc[:0])
    return hostile(analysis) if request.param == "hostile" else analysis


def test_speedscope_reads_every_nanosecond_once(each: Analysis) -> None:
    text = to_speedscope(each)
    assert text.rstrip("\n").replace("\n", "").isprintable()
    held = json.loads(text)
    jsonschema.validate(held, SPEEDSCOPE)
    (profile,) = held["profiles"]
    frames = {index for sample in profile["samples"] for index in sample}
    assert frames == set(range(len(held["shared"]["frames"])))
    assert len(profile["samples"]) == len(profile["weights"])
    assert sum(profile["weights"]) == profile["endValue"] == each.work["busy_ns"].sum()


def test_collapsed_stacks_are_one_line_each_and_hold_the_same_time(each: Analysis) -> None:
    lines = to_collapsed(each).splitlines()
    stacks = [line.rpartition(" ")[0] for line in lines]
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == each.work["busy_ns"].sum()
    depths = [len(sample) for sample in json.loads(to_speedscope(each))["profiles"][0]["samples"]]
    assert [stack.count(";") + 1 for stack in stacks] == depths


def test_a_stack_leads_from_the_model_to_the_kernel(analysis: Analysis) -> None:
    name = "a;b\nc"
    stacks = to_collapsed(replace(analysis, work=analysis.work.assign(name=name)))
    own = next(line for line in stacks.splitlines() if "h.3 (GPT2Block);attn (GPT2Attention)" in line)
    outer, *_, kernel = own.rpartition(" ")[0].split(";")
    assert "GPT2" in outer
    assert kernel == "a:b\N{REPLACEMENT CHARACTER}c"


@pytest.mark.parametrize("name", ["x.speedscope.json", "x.folded", "X.COLLAPSED"])
def test_the_extension_says_the_format(tmp_path: Path, name: str) -> None:
    trace, out = str(write_tiny_trace(tmp_path / "t.json", kernel_us=4)), tmp_path / name
    for _ in range(2):
        done = CliRunner().invoke(main, ["analyze", trace, "-o", str(out), "--no-cache"])
        assert done.exit_code == 0, done.output
    text = out.read_text("utf-8")
    if name.endswith(".json"):
        jsonschema.validate(json.loads(text), SPEEDSCOPE)
    else:
        assert all(line.rpartition(" ")[2].isdigit() for line in text.splitlines())
    out.write_text("mine")
    refused = CliRunner().invoke(main, ["analyze", trace, "-o", str(out), "--no-cache"])
    assert refused.exit_code == 1
    assert out.read_text() == "mine"
