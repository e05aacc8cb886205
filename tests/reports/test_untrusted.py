"""No output lets a name in a trace command a terminal, a spreadsheet or a browser."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile import CLIPBOARD, FORGED_ROW, FORMULA, NAMES, REVERSED, hostile
from msgspec import structs
from test_comparison_reports import hostile as hostile_comparison
from verified_runs import verified

import tracekit
from tracekit.analyzers.compare import compare
from tracekit.analyzers.results import Analysis
from tracekit.cli import main
from tracekit.measure import Row, from_csv
from tracekit.measure.bench_rows import to_csv as bench_csv
from tracekit.reports.answer import analysis_document, export, html, notebook, summary, terminal_document
from tracekit.reports.answer.measured import measured_document
from tracekit.reports.answer.prediction import prediction_document, to_json
from tracekit.reports.compare import comparison_document, page
from tracekit.reports.compare import export as comparison_export
from tracekit.reports.document import render
from tracekit.reports.measure import bench
from tracekit.reports.words import TABLES, csv_cell, from_csv_cell, json_text, printable_lines
from tracekit.run import to_json as verified_json

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
STARTS = ("=", "+", "-", "@", "\t", "\r")


def cells(text: str) -> list[str]:
    return [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def assert_harmless_csv(text: str) -> None:
    assert not CONTROLS.search(text)
    assert [cell for cell in cells(text) if cell.startswith(STARTS) and not is_number(cell)] == []


def hostile_row(name: str) -> Row:
    timed = {"latency_us": 2.0, "latency_p10_us": 1.0, "latency_p90_us": 3.0, "speedup": 1.0}
    asked = {"model": name, "workload": name, "batch_size": 1, "seq_len": 8, "new_tokens": 0, "weights": "random"}
    return Row(**asked, **timed, config=name, first=name, device=name, unit=name, caveats=name, error=name)


@pytest.mark.parametrize("start", STARTS)
def test_a_formula_is_a_text_in_a_spreadsheet(start: str) -> None:
    cell = csv_cell(f"{start}SUM(A1:A9)")
    assert not cell.startswith(STARTS)
    assert "SUM(A1:A9)" in cell


@pytest.mark.parametrize("name", ["gemm", "'quoted'", "a=b", "=a", " =a", "-1", "'=a"])
def test_a_cell_is_read_as_it_was_written(name: str) -> None:
    assert from_csv_cell(csv_cell(name)) == name or name == "'=a"


def test_lines_stay_lines() -> None:
    assert printable_lines("a\n\tb\x1b\nc\r") == "a\n\tb\N{REPLACEMENT CHARACTER}\nc\N{REPLACEMENT CHARACTER}"


def test_json_escapes_what_it_keeps() -> None:
    text = json_text(list(NAMES))
    assert not CONTROLS.search(text)
    assert json.loads(text) == list(NAMES)


def test_tables_of_an_analysis(analysis: Analysis) -> None:
    nasty = hostile(analysis)
    for table in TABLES:
        assert_harmless_csv(export.to_csv(nasty, table))
    names = cells(export.to_csv(nasty))
    assert f"'{FORMULA}" in names
    assert FORGED_ROW.replace("\r", "\N{REPLACEMENT CHARACTER}") in names


def test_every_text_of_an_analysis(analysis: Analysis) -> None:
    nasty = hostile(analysis)
    texts = [
        export.to_json(nasty),
        summary(nasty),
        render(terminal_document(nasty), "text", width=140, colour=False),
        render(analysis_document(nasty), "markdown"),
        html.render(nasty),
        *notebook._analysis(nasty).values(),
    ]
    assert [CONTROLS.findall(text) for text in texts] == [[]] * len(texts)


def test_a_coloured_terminal_gets_no_sequence_but_colours(analysis: Analysis) -> None:
    text = render(terminal_document(hostile(analysis)), "text", width=140, colour=True)
    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", text))
    assert "\x1b]" not in text


def test_every_text_of_a_comparison(analysis: Analysis) -> None:
    nasty = hostile_comparison(compare(analysis, analysis))
    nasty = replace(nasty, notes=(CLIPBOARD, REVERSED), a=replace(nasty.a, name=CLIPBOARD))
    for table in comparison_export.TABLES:
        assert_harmless_csv(comparison_export.to_csv(nasty, table))
    texts = [
        comparison_export.to_json(nasty),
        render(comparison_document(nasty), "text", width=140, colour=False),
        render(comparison_document(nasty), "markdown"),
        page.render(nasty),
        *notebook._comparison(nasty).values(),
    ]
    assert [CONTROLS.findall(text) for text in texts] == [[]] * len(texts)


@pytest.mark.parametrize("name", [*NAMES, "[/bold]", "[link=http://evil]x"])
def test_every_text_of_a_bench(name: str, tmp_path: Path) -> None:
    row = hostile_row(name)
    assert_harmless_csv(bench_csv([row]))
    rows = [vars(row), vars(replace(row, error="", config="b", speedup=2.0))]
    for form in ("text", "html"):
        assert not CONTROLS.search(render(bench.bench_document(rows), form, width=200))
    (tmp_path / "bench.csv").write_text(bench_csv([row]), newline="")
    assert from_csv(tmp_path / "bench.csv")[0].model == "".join(
        "\N{REPLACEMENT CHARACTER}" if CONTROLS.match(each) else each for each in name
    )


def test_every_text_of_a_verification(analysis: Analysis) -> None:
    done = verified(analysis).verified
    assert done is not None
    settings = dict.fromkeys(("name", "model", "workload", "batch_size", "dtype"), CLIPBOARD)
    bad = [structs.replace(each, title=REVERSED, error=CLIPBOARD, caveats=(CLIPBOARD,)) for each in done.results]
    nasty = structs.replace(done, device_name=CLIPBOARD, settings=settings, results=tuple(bad), caveats=(REVERSED,))
    assert not CONTROLS.search(render(measured_document(nasty), "text", width=120))
    assert not CONTROLS.search(verified_json(nasty))


def test_every_text_of_a_prediction() -> None:
    sample = Path(__file__).parents[2] / "examples" / "traces" / "h200_gpt2_decode.json.gz"
    bare = tracekit.predict(sample, "half-precision")
    nasty = structs.replace(bare, how_to=(REVERSED,), caveats=NAMES[:4], applied=(CLIPBOARD, "[/x]"))
    assert not CONTROLS.search(render(prediction_document(nasty), "text", width=120))
    assert not CONTROLS.search(to_json(nasty))


def test_an_error_that_quotes_a_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["analyze", str(tmp_path / CLIPBOARD.replace("/", ""))])
    assert result.exit_code == 1
    assert not CONTROLS.search(result.stderr)


@pytest.mark.parametrize("form", ["csv", "json", "text", "markdown"])
def test_the_command(form: str, tmp_path: Path) -> None:
    kernels = [
        {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10 * at, "dur": 5, "args": {"device": 0}}
        for at, name in enumerate(NAMES)
    ]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": kernels}))
    result = CliRunner().invoke(main, ["analyze", str(tmp_path / "trace.json"), "--format", form])
    assert result.exit_code == 0
    assert not CONTROLS.search(result.stdout)
    if form == "csv":
        assert_harmless_csv(result.stdout)
