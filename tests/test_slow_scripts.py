"""Slow scripts with a planted cause: their rows, and the advice of today's code for the traces that are kept."""

import json

import jsonschema
import pytest

import tracekit
from benchmarks.slow_scripts import command as table
from tracekit.reports.answer import headline
from tracekit.reports.answer.export import to_json
from tracekit.reports.words import schema

TRACES = table.HERE / "traces"
ROWS = {row["script"]: row for row in table.later()}


def test_a_row_is_right_where_its_first_advice_names_the_planted_cause():
    """Where a script is too large for other GPUs, it is right only if that is said of each of them."""
    for row in table.rows():
        advice = row["right_advice"].split()
        if "gradient-checkpointing" not in advice and row["script"] != "loaded-in-float32":
            assert (row["right"] == "yes") == (row["first_advice"] in advice), row["script"]


def test_each_script_is_one_row_before_and_one_after_its_gain_was_known():
    before, later = ([(row["set"], row["script"]) for row in some] for some in (table.before_gains(), table.later()))
    assert len(before) == len(set(before)) == 1075 and len(ROWS) == 836
    assert [*before[:97], *before[127:]] == later
    assert {path.name.removesuffix(".json.gz") for path in TRACES.iterdir()} <= {script for _, script in before}


def test_hits_are_shown_with_widths():
    assert "| **all sets** | 1075 |  | 832 | 478 of 662 | 2.0 |" in table.summary()
    assert "| first twenty-eight | 656 | before gains, or with them | 486 | 243 of 368 | 2.0 |" in table.summary()


@pytest.mark.parametrize("name", ["data-loading", "preprocessing", "sync-in-a-loop", "unfused-optimizer"])
def test_a_planted_cause_is_the_first_advice(name):
    first = tracekit.analyze(TRACES / f"{name}.json.gz").recommendations[0]
    assert first.id == ROWS[name]["first_advice"]
    assert first.id in ROWS[name]["right_advice"].split()


@pytest.mark.parametrize("name", ["steering-frames", "music-codebooks", "swapped-adapters"])
def test_the_gain_of_the_fix_of_a_graph_lies_inside(name):
    row, trace = ROWS[name], TRACES / f"{name}.json.gz"
    first = tracekit.analyze(trace).recommendations[0]
    assert first.id == row["first_advice"]
    told = first.speedup if row["asked"] == first.id else tracekit.predict(trace, row["asked"]).speedup
    gain = float(row["gain"])
    assert 0.6 * gain < told.expected < 1.6 * gain and told.low <= gain <= told.high


def test_on_a_gpu_that_is_too_small_what_makes_it_fit_comes_first():
    there = tracekit.analyze(TRACES / "does-not-fit.json.gz", "t4")
    assert "does not fit an NVIDIA T4: at least 25." in headline(there)
    assert headline(there).endswith("it may fit with gradient checkpointing.")
    first = "gradient-checkpointing"
    assert (there.recommendations[0].id, there.plan[0].name, there.memory_fit.fitting[0].name) == (first, first, first)
    assert there.plan[0].memory_bytes < 16e9
    jsonschema.validate(json.loads(to_json(there)), schema("analysis"))
