"""An analysis as a GitHub comment shows the analysis's numbers, and escapes names."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hostile import hostile
from msgspec.structs import replace

from tracekit.analyzers.results import Analysis
from tracekit.cli import main
from tracekit.reports.answer import analysis_document, headline
from tracekit.reports.document import render as rendered
from tracekit.reports.document.markdown import bar, block


def render(analysis: Analysis) -> str:
    return rendered(analysis_document(analysis), "markdown")


SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "h200_gpt2_prefill.json.gz"


def test_the_headline_comes_first(analysis: Analysis) -> None:
    assert render(analysis).startswith(f"**{headline(analysis)}**\n")


def test_it_holds_figures_bounds_and_advice(analysis: Analysis) -> None:
    text = render(analysis)
    assert "| launch | `█████████████████░░░` | 87 % |" in text
    assert f"| 1. | **{analysis.recommendations[0].title}** | 6.8–8.1× |" in text
    assert "```python\n" + analysis.recommendations[0].how_to in text
    assert "| `gemv2T_kernel_val<float>` | 49 | 246 µs | 64 % | 246 MFLOP | 494 MB | memory |" in text
    assert "`h.*` × 12" in text
    assert "| warning | 3 events had no clock. |" in text


def test_modelled_is_unmistakable(modelled: Analysis) -> None:
    assert "**Modelled: every number is a prediction, nothing was measured, Tesla T4" in render(modelled)


def test_what_is_folded_is_closed(analysis: Analysis) -> None:
    text = render(analysis)
    assert text.count("<details>") == text.count("</details>") > 4
    assert not re.search(r"</summary>\n[^\n]", text), "Markdown in HTML begins after an empty line"


def test_tables_are_whole(analysis: Analysis) -> None:
    for shown in (analysis, hostile(analysis)):
        blocks = re.split(r"\n\n", re.sub(r"(`{3,}).*?\n\1", "", render(shown), flags=re.S))
        for rows in (part.splitlines() for part in blocks if part.startswith("| ")):
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_names_stay_names(analysis: Analysis) -> None:
    text = render(hostile(analysis)).replace(r"\`", "")
    without_code = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text, flags=re.S)
    tags = set(re.findall(r"<[^>]*>", without_code)) - {"<!-- -->"}
    assert tags == {"<details>", "</details>", "<summary>", "</summary>"}
    assert not re.search(r"https?://", without_code)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert max(map(len, text.splitlines())) < 50_000


def test_nothing_to_advise(imported: Analysis) -> None:
    assert "No recommendation: nothing can be predicted. 3 events had no clock." in render(
        replace(imported, recommendations=())
    )


@pytest.mark.parametrize(("share", "filled"), [(0.0, 0), (0.001, 1), (0.5, 10), (1.0, 20), (1.2, 20)])
def test_bars(share: float, filled: int) -> None:
    assert bar(share) == "█" * filled + "░" * (20 - filled)


def test_code_cannot_end_its_block() -> None:
    assert block("a\n```\nb", "python") == "````python\na\n```\nb\n````"


def test_the_command(tmp_path: Path) -> None:
    target = tmp_path / "comment.md"
    result = CliRunner().invoke(main, ["analyze", str(SAMPLE), "-o", str(target)])
    assert (result.exit_code, result.stdout) == (0, "")
    printed = CliRunner().invoke(main, ["analyze", str(SAMPLE), "--format", "markdown"]).stdout
    assert target.read_text("utf-8").startswith(printed.rstrip("\n"))
    assert printed.startswith("**GPT-2 prefill, batch 1, 512 tokens, fp32, on an H200: ")
