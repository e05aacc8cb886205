import re
from typing import Any

import pytest
from hostile import hostile
from msgspec.structs import replace

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import Analysis, DeviceTime, Projection
from tracekit.analyzers.trace import problem
from tracekit.analyzers.trace.problems import table
from tracekit.analyzers.trace.trace import PROBLEMS
from tracekit.reports.answer import headline, summary, terminal_document
from tracekit.reports.document import render


def full(analysis: Analysis, **how: Any) -> str:
    return render(terminal_document(analysis), "text", **how)


def brief(analysis: Analysis, **how: Any) -> str:
    return render(terminal_document(analysis, brief=True), "text", **how)


def test_the_summary_is_ten_lines_or_so(analysis: Analysis) -> None:
    lines = summary(analysis).splitlines()
    assert lines[0] == headline(analysis)
    assert 8 <= len(lines) <= 12
    labels = [line.split()[0] for line in lines[1:]]
    assert labels == [
        "source",
        "step",
        "bound",
        "layers",
        "kernels",
        "next",
        "Batching:",
        "Fused",
        "coverage",
        "problems",
    ]


def test_what_the_summary_says(analysis: Analysis) -> None:
    text = summary(analysis)
    assert "unprofiled 2.10 ms (2.05 ms to 2.31 ms); 2.37 ms in the trace; GPU busy 13 %, idle 87 %" in text
    assert "launch 87 %, latency 6.5 %, memory 6.0 %, transfer 0.5 %" in text
    assert "48 × Conv1D 53 %" in text
    assert "CUDA graphs: predicted 6.8–8.1×." in text
    assert "op 100 %, layer 99.5 %, cost 98 % of the busy time" in text
    assert "3 events had no clock." in text


def test_what_the_devices_did_is_said_where_it_is_not_only_computing(analysis: Analysis) -> None:
    def devices(**times: int) -> str:
        spent = {"copy_ns": 0, "communication_ns": 0, "exposed_communication_ns": 0, **times}
        device = DeviceTime(span_ns=4_000_000, compute_ns=3_000_000, **spent)
        line = replace(analysis.timeline, device=device)
        return summary(replace(analysis, timeline=line))

    assert "devices" not in devices(copy_ns=30_000)
    assert "devices   compute 75 %, copies 2.0 % of 4.00 ms from first to last work" in devices(copy_ns=80_000)
    said = devices(communication_ns=1_000_000, exposed_communication_ns=600_000)
    assert "communication 25 % (15 % exposed)" in said and "copies 0 %" in said


def test_modelled_is_unmistakable(modelled: Analysis) -> None:
    assert "MODELLED: every number is a prediction, nothing was measured" in summary(modelled)
    assert "MODELLED 2.10 ms (2.05 ms to 2.31 ms); GPU busy" in summary(modelled)
    assert "Kernels, modelled" in full(modelled, width=120)


def test_nothing_to_say(imported: Analysis) -> None:
    bare = replace(imported, recommendations=(), problems=PROBLEMS.empty())
    assert "no recommendation" in summary(bare)
    assert "problems  none" in summary(bare)


def test_a_projection_that_does_not_fit_says_so(imported: Analysis) -> None:
    projection = Projection(hardware.find("t4"), Interval(3000, 3400, 4100), Interval(900, 1000, 1200), "Scaled.")
    assert "projected 3.00 ms to 4.10 ms per step" in summary(replace(imported, projection=projection))
    small = replace(projection, memory_bytes=25_500_000_000, memory_at_least=True)
    said = "does not fit, it needs at least 25.5 of 16 GB; with enough memory 3.00 ms to 4.10 ms per step"
    assert said in summary(replace(imported, projection=small))


def test_the_worst_problem_is_named_first(imported: Analysis) -> None:
    rows = [problem("no-layers"), problem("unknown-gpu"), problem("does-not-fit", detail="no")]
    text = summary(replace(imported, problems=table(rows)))
    assert "problems  The run does not fit the GPU" in text


@pytest.mark.parametrize("width", [60, 100, 160])
def test_tables_fit_the_terminal(analysis: Analysis, width: int) -> None:
    assert max(map(len, full(hostile(analysis), width=width, colour=False).splitlines())) <= max(width, 86)


def test_tables_hold_the_numbers(analysis: Analysis) -> None:
    text = full(analysis, width=120, colour=False)
    row = next(line for line in text.splitlines() if line.strip().startswith("gemv2T_kernel_val<float>"))
    assert row.split() == [
        "gemv2T_kernel_val<float>",
        "49",
        "246",
        "µs",
        "64",
        "%",
        "███████▋",
        "246",
        "MFLOP",
        "494",
        "MB",
        "memory",
        "memory",
    ]
    layers = text[text.index("\nLayers") : text.index("\nLayer types")].splitlines()
    block = next(line for line in layers if line.strip().startswith("h.* ×12"))
    of_blocks = analysis.layers[analysis.layers["type"] == "GPT2Block"]
    assert block.split()[2] == f"{of_blocks['calls'].sum()}"


@pytest.mark.parametrize("width", [80, 120])
def test_own_bounds_stand_beside_those_of_the_step(analysis: Analysis, width: int) -> None:
    waits = replace(analysis, kernels=analysis.kernels.assign(bound="launch"))
    lines = full(waits, width=width, colour=False).splitlines()
    gemv = next(line for line in lines if line.startswith("gemv2T"))
    assert gemv.split()[-2:] == ["launch", "memory"]
    assert max(map(len, lines)) <= width


def test_what_bounds_it_is_drawn(analysis: Analysis) -> None:
    text = brief(analysis, width=100, colour=False)
    bar = next(line for line in text.splitlines() if line.startswith("  ░")).split()[0]
    assert (len(bar), bar.count("░"), bar.count("▒"), bar.count("▓")) == (60, 52, 4, 4)
    assert "░ launch 87 %   ▒ latency 6.5 %   ▓ memory 6.0 %   ▚ transfer 0.5 %" in text


def test_predictions_are_drawn_on_one_axis(analysis: Analysis) -> None:
    lines = brief(analysis, width=120, colour=False).splitlines()
    header = next(line for line in lines if "predicted" in line)
    start = header.index("1×")
    graphs = next(line for line in lines if line.startswith("1.   CUDA graphs"))
    drawn = graphs[start : start + 24]
    largest = max(advice.speedup.high for advice in analysis.recommendations)
    assert "6.8–8.1×" in graphs
    assert drawn.index("●") == round(23 * (analysis.recommendations[0].speedup.expected - 1) / (largest - 1))
    assert "●" not in "".join(brief(analysis, width=80, colour=False))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_brief_fits_the_terminal(analysis: Analysis, width: int) -> None:
    assert max(map(len, brief(analysis, width=width, colour=False).splitlines())) <= width


def test_colour_only_when_asked_or_on_a_terminal(analysis: Analysis) -> None:
    assert "\x1b" not in full(analysis, width=100)
    assert "\x1b[" in full(analysis, width=100, colour=True)


def test_names_cannot_control_the_terminal(analysis: Analysis) -> None:
    text = summary(hostile(analysis)) + full(hostile(analysis), width=100, colour=False)
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text) == []
