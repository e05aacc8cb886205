"""Our values and magics in an IPython shell."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hostile import SCRIPT, hostile
from IPython.core.error import UsageError
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from msgspec.structs import replace
from test_comparison_reports import hostile as hostile_comparison

from tracekit.analyzers.compare import compare
from tracekit.analyzers.core import Displayed
from tracekit.analyzers.results import Analysis
from tracekit.reports.answer import headline, renderers, summary

Displayed.renderers = renderers

CELL = """
import torch
with torch.no_grad():
    answer = torch.nn.Linear(8, 4)(torch.ones(2, 8)).shape
answer
"""


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def displayed(value: object) -> dict[str, str]:
    return DisplayFormatter().format(value)[0]


def test_an_analysis_shows_itself(analysis: Analysis) -> None:
    bundle = displayed(analysis)
    assert bundle["text/plain"] == summary(analysis)
    tags = Tags(bundle["text/html"])
    for said in (headline(analysis), "launch 87 %", "6.8–8.1×", "h.* × 12", "gemv2T_kernel_val<float>", "2.10 ms"):
        assert said in tags.text
    assert tags.attributes == {"style"}


def test_a_recommendation_shows_itself(analysis: Analysis) -> None:
    advice = analysis.recommendations[0]
    bundle = displayed(advice)
    assert bundle["text/plain"].startswith(f"{advice.title}: predicted 6.8–8.1×. ")
    assert advice.how_to in Tags(bundle["text/html"]).text


def test_a_comparison_shows_itself(analysis: Analysis) -> None:
    faster = replace(analysis, gaps=analysis.gaps.iloc[:0])
    bundle = displayed(compare(analysis, faster, ("before", "after")))
    assert "within the spread of their steps" in bundle["text/plain"]
    tags = Tags(bundle["text/html"])
    assert "before" in tags.text
    assert "GEMMs" in tags.text


@pytest.mark.parametrize("what", ["analysis", "recommendation", "comparison"])
def test_hostile_names_are_text(analysis: Analysis, what: str) -> None:
    bad = hostile(analysis)
    comparison = hostile_comparison(compare(analysis, analysis))
    value = {"analysis": bad, "recommendation": bad.recommendations[0], "comparison": comparison}[what]
    text = displayed(value)["text/html"]
    tags = Tags(text)
    assert not tags.tags & {"script", "img", "a", "iframe", "link", "style"}
    assert tags.attributes <= {"style", "open"}
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", text)
    assert SCRIPT in tags.text
    assert len(text) < 200_000


def test_what_nobody_draws_is_left_to_repr() -> None:
    class Plain(Displayed):
        def __repr__(self) -> str:
            return "plain"

    assert displayed(Plain()) == {"text/plain": "plain"}


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shell = InteractiveShell(user_ns={})
    shell.history_manager.enabled = False
    shell.run_line_magic("load_ext", "tracekit")
    yield shell
    InteractiveShell.clear_instance()


def test_a_cell_is_profiled(shell: InteractiveShell, tmp_path: Path) -> None:
    with capture_output() as shown:
        analysis = shell.run_cell_magic("tracekit", "-o mine", CELL)
    assert isinstance(analysis, Analysis)
    assert analysis.source.kind == "measured"
    assert "aten::addmm" in set(analysis.ops["name"])
    assert "Linear" in set(analysis.layer_types["type"])
    assert tuple(shell.user_ns["answer"]) == (2, 4)
    assert "torch.Size([2, 4])" in shown.stdout
    assert {path.name for path in (tmp_path / "mine").iterdir()} >= {"trace.json.gz", "report.html", "analysis.json"}


def test_a_cell_that_fails_says_so_itself(shell: InteractiveShell, tmp_path: Path) -> None:
    with capture_output() as shown:
        analysis = shell.run_cell_magic("tracekit", "", "import torch\ntorch.ones(2)\nraise ValueError('mine')")
    assert analysis is None
    assert "ValueError: mine" in re.sub(r"\x1b\[[\d;]*m", "", shown.stdout + shown.stderr)
    assert (tmp_path / "runs" / "notebook" / "trace.json.gz").is_file()
    assert not (tmp_path / "runs" / "notebook" / "report.html").exists()


def test_mistakes_are_explained(shell: InteractiveShell) -> None:
    with pytest.raises(UsageError, match="nonsense"):
        shell.run_cell_magic("tracekit", "--gpu nonsense", "1")
    with pytest.raises(UsageError, match="nonsense"):
        shell.run_line_magic("tracekit", "gpt2 --workload nonsense")


def test_a_line_profiles_a_model(shell: InteractiveShell, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with capture_output():
        line = "gpt2 --gpu t4 --device model --workload decode --seq-len 16 --steps 1 -o there"
        analysis = shell.run_line_magic("tracekit", line)
    assert (analysis.source.kind, analysis.source.gpu.id) == ("modelled", "t4")
    assert (tmp_path / "there" / "report.html").is_file()
