"""A comparison as text, data and a comment shows the comparison's numbers, and escapes names."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hostile import NAMES, SCRIPT
from msgspec import structs

from tracekit.analyzers.compare import Comparison, compare
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import Analysis
from tracekit.answer import compare as compare_runs
from tracekit.cli import main
from tracekit.reports.compare import comparison_document, explained, export
from tracekit.reports.compare.names import layer_patterns
from tracekit.reports.document import render
from tracekit.reports.document.markdown import code, prose

SAMPLES = Path(__file__).parents[2] / "examples" / "traces"
A, B = SAMPLES / "h200_gpt2_decode.json.gz", SAMPLES / "h200_gpt2_decode_eager_for-t4.json.gz"


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare_runs(A, B)


def scaled(analysis: Analysis, factor: float, family: str, precision: str) -> Analysis:
    """Return the run with a family's kernels in another precision, shorter by as much as the step."""
    of_family = analysis.work["family"] == family
    busy = analysis.work["busy_ns"].where(~of_family, (analysis.work["busy_ns"] * factor).astype("int64"))
    saved_us = (analysis.work["busy_ns"].sum() - busy.sum()) / 1e3
    names = analysis.work["precision"].astype(object).where(~of_family, precision)
    timed = analysis.latency.unprofiled
    assert timed is not None
    faster = structs.replace(analysis.latency, unprofiled=replace_latency(timed, saved_us))
    return structs.replace(
        analysis, work=analysis.work.assign(duration_ns=busy, busy_ns=busy, precision=names), latency=faster
    )


def replace_latency(timed, saved_us):
    return type(timed)(timed.median_us - saved_us, timed.p10_us - saved_us, timed.p90_us - saved_us, timed.samples)


def test_the_sentence_names_the_largest_reasons(comparison: Comparison) -> None:
    assert explained(comparison) == (
        "B is 1.20× as fast as A: attention takes 722 µs less (only in A), and the GPU waits 367 µs less for the host."
    )


def test_the_sentence_the_other_way_round() -> None:
    assert explained(compare_runs(B, A)) == (
        "B takes 1.20× as long as A: attention takes 722 µs more (only in B), "
        "and the GPU waits 367 µs more for the host."
    )


def test_the_sentence_names_another_precision(analysis: Analysis) -> None:
    quick = structs.replace(
        analysis,
        latency=structs.replace(
            analysis.latency,
            unprofiled=replace_latency(
                analysis.latency.unprofiled, analysis.latency.unprofiled.median_us - analysis.timeline.busy_ns / 1e3
            ),
        ),
    )
    text = explained(compare(quick, scaled(quick, 0.25, "gemm", "bf16")))
    assert re.fullmatch(r"B is [\d.]+× as fast as A: GEMMs take \d+ µs less \(bf16 instead of fp32\)\.", text)


def test_equal_runs_are_called_that(analysis: Analysis) -> None:
    assert explained(compare(analysis, analysis)) == "B is as fast as A (1.00×, within the spread of their steps)."


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_terminal_is_not_overrun(comparison: Comparison, width: int) -> None:
    lines = render(comparison_document(comparison), "text", width=width, colour=False).splitlines()
    assert max(map(len, lines)) <= max(width, 76)
    assert not any(line.endswith(" ") for line in lines)


def test_the_terminal_holds_the_numbers(comparison: Comparison) -> None:
    text = render(comparison_document(comparison), "text", width=120, colour=False)
    assert "\x1b" not in text
    rows = [line.split() for line in text.splitlines()]
    assert [
        "attention",
        "722",
        "µs",
        "–",
        "−722",
        "µs",
        "██████│",
        "75.8",
        "%",
        "12",
        "→",
        "0",
        "only",
        "in",
        "A",
    ] in rows
    assert ["the", "step", "5.77", "ms", "4.82", "ms", "−953", "µs", "100.0", "%", "235", "→", "293"] in rows
    assert any(row[:4] == ["attn", "×12", "889", "µs"] for row in rows)
    assert "\x1b[" in render(comparison_document(comparison), "text", width=120, colour=True)


def test_layers_that_differ_in_a_number_are_one_pattern(comparison: Comparison) -> None:
    patterns = layer_patterns(comparison.layers)
    block = patterns[patterns["name"] == "h.*"].iloc[0]
    of_blocks = comparison.layers[comparison.layers["a_path"].str.fullmatch(r"transformer\.h\.\d+")]
    assert block["count"] == 12
    assert block["change_ns"] == pytest.approx(of_blocks["change_ns"].sum())
    assert patterns["change_self_ns"].sum() == pytest.approx(comparison.layers["change_self_ns"].sum())
    assert patterns["count"].sum() == len(comparison.layers)


def test_json_is_the_comparison(comparison: Comparison) -> None:
    data = json.loads(export.to_json(comparison))
    assert data["speedup"] == round(comparison.speedup, 4)
    assert data["explanation"] == explained(comparison)
    assert sum(row["change_us"] for row in data["difference"]) == pytest.approx(data["change_us"], abs=0.01)
    assert data["ops"][0] | {"a_name": "", "b_name": ""} == data["ops"][0] | {"a_name": "", "b_name": ""}
    only = [row for row in data["ops"] if row["match"] == "only A"]
    assert [(row["a_name"], row["b_name"]) for row in only] == [("aten::_efficient_attention_forward", None)]
    assert data["layers"][0]["parent"] is None


@pytest.mark.parametrize("table", export.TABLES)
def test_csv_has_every_row(comparison: Comparison, table: str) -> None:
    rows = list(csv.DictReader(io.StringIO(export.to_csv(comparison, table))))
    assert len(rows) == len(getattr(comparison, table))
    assert {"a_us", "b_us", "change_us"} <= set(rows[0])


def test_a_comment_on_github(comparison: Comparison) -> None:
    text = render(comparison_document(comparison), "markdown")
    assert text.startswith("**B is 1.20× as fast as A")
    assert "| **the step** | **5.77 ms** | **4.82 ms** | **−953 µs** | **100.0 %** |" in text
    assert text.count("<details>") == text.count("</details>") == 3
    assert "`h.*` × 12" in text


def hostile(comparison: Comparison) -> Comparison:
    def cycled(frame, *columns):
        return frame.assign(**{c: [NAMES[row % len(NAMES)] for row in range(len(frame))] for c in columns})

    return replace(
        comparison,
        a=replace(comparison.a, name=SCRIPT),
        b=replace(comparison.b, name="@someone | #1 https://example.com"),
        layers=cycled(comparison.layers, "a_path", "b_path", "a_type", "b_type"),
        ops=cycled(comparison.ops, "a_name"),
        kernels=cycled(comparison.kernels, "a_name", "b_name"),
    )


def test_names_stay_names(comparison: Comparison) -> None:
    bad = hostile(comparison)
    plain = render(comparison_document(bad), "text", width=100, colour=False)
    assert re.findall("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", plain) == []
    text = render(comparison_document(bad), "markdown")
    outside_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)
    assert set(re.findall(r"<[^>]*>", outside_code)) <= {"<details>", "</details>", "<summary>", "</summary>"}
    assert "@" not in outside_code
    assert "http" not in outside_code
    tables = [line for line in text.splitlines() if line.startswith("| ")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in tables}
    assert cells == {5, 6, 8}


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a`b", "``a`b``"),
        ("`", "`` ` ``"),
        ("a|b", "`a\\|b`"),
        ("", ""),
        ("<b>", "`<b>`"),
        ("two\nlines", "`two�lines`"),
    ],
)
def test_code_holds_any_name(name: str, written: str) -> None:
    assert code(name) == written


def test_prose_is_literal() -> None:
    assert prose("*a* _b_ [c](d) <e> f|g & #h") == r"\*a\* \_b\_ \[c\](d) &lt;e&gt; f\|g &amp; #h"
    assert prose("# title") == r"\# title"
    assert prose("@me #12") == "<!-- -->@<!-- -->me <!-- -->#<!-- -->12"


def test_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["compare", str(A), str(B)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("B is 1.20× as fast as A")
    target = tmp_path / "comment.md"
    result = CliRunner().invoke(main, ["compare", str(A), str(B), "-o", str(target)])
    assert (result.exit_code, result.stdout) == (0, "")
    assert target.read_text("utf-8").startswith("**B is 1.20×")
    result = CliRunner().invoke(main, ["compare", str(A), str(B), "--format", "csv", "--table", "ops"])
    assert result.stdout.startswith("a_name,b_name,match,family,a_us,b_us,change_us")


def test_a_file_that_is_not_there() -> None:
    result = CliRunner().invoke(main, ["compare", str(A), "absent.json"])
    assert result.exit_code == 1
    assert "absent.json does not exist." in result.stderr


def test_sides_are_named_after_their_runs(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "trace.json.gz").write_bytes(A.read_bytes())
    compared = compare_runs(folder, folder / "trace.json.gz")
    assert (compared.a.name, compared.b.name) == (str(folder), str(folder / "trace.json.gz"))
    assert compare_runs(folder, B).a.name == "mine"


def changed(analysis: Analysis, gpu: str = "", precision: str = "", **capture: object) -> Analysis:
    source = analysis.source
    settings = msgspec.structs.replace(source.capture, **capture)
    device = {"gpu": hardware.find(gpu), "device_name": gpu} if gpu else {}
    return structs.replace(
        analysis, source=structs.replace(source, capture=settings, precision=precision or source.precision, **device)
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model": "bert"}, "different workloads (GPT-2 and BERT)"),
        ({"batch_size": 8}, "different workloads (batch 1 and 8)"),
        ({"workload": "prefill", "gpu": "t4"}, "different workloads (phase decode and prefill, H200 and T4)"),
        ({"gpu": "t4", "precision": "fp16"}, "more than one respect (H200 and T4, fp32 and fp16)"),
        ({"gpu": "t4"}, ""),
        ({"precision": "bf16"}, ""),
        ({}, ""),
    ],
)
def test_unlike_workloads_are_said_first(analysis: Analysis, changes: dict[str, Any], said: str) -> None:
    comparison = compare(analysis, changed(analysis, **changes))
    texts = [
        render(comparison_document(comparison), "text", width=400, colour=False),
        render(comparison_document(comparison), "markdown"),
        json.loads(export.to_json(comparison))["explanation"],
    ]
    for text in texts:
        first = text.split("\n")[0]
        assert (said in first) if said else ("A and B are" not in first)


def test_models_of_imported_traces_are_told_by_their_class(analysis: Analysis) -> None:
    bare = structs.replace(analysis, source=structs.replace(analysis.source, capture=None))
    other = structs.replace(
        bare, layers=bare.layers.assign(type=bare.layers["type"].replace({bare.layers["type"][0]: "Bert"}))
    )
    assert render(comparison_document(compare(bare, other)), "text", width=400, colour=False).startswith(
        "A and B are different workloads ("
    )
    assert (
        "different"
        not in render(comparison_document(compare(bare, bare)), "text", width=400, colour=False).split("\n")[0]
    )
