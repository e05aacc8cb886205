"""The page of a comparison, as text and in a browser."""

import base64
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, chromium
from pages import click, enter, shown
from test_accessibility import AXE, FINDINGS
from test_comparison_reports import A, B, hostile
from test_html import Parsed

from tracekit.analyzers.compare import Comparison
from tracekit.answer import compare
from tracekit.reports.compare import explained, parts
from tracekit.reports.compare.page import render

needs_browser = pytest.mark.skipif(chromium() is None and not os.environ.get("CI"), reason="needs Chromium")


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(A, B)


@pytest.fixture(scope="module")
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("page"), comparison) as page:
        yield page


def opened(folder: Path, comparison: Comparison, **how: int) -> Page:
    path = folder / "compare.html"
    path.write_text(render(comparison), "utf-8")
    page = Page(path, **how)
    page.wait_for("document.body.dataset.ready === 'yes'")
    return page


def test_it_tells_everything(comparison: Comparison) -> None:
    text = re.sub(r"\s+", " ", Parsed(render(comparison).replace("</td>", " </td>").replace("</th>", " </th>")).text)
    for said in (
        explained(comparison),
        "h200_gpt2_decode_eager_for-t4.json.gz",
        "5.77 ms per step, 5.22 ms to 6.20 ms",
        "attention 722 µs – −722 µs 75.8 % 12 → 0 only in A",
        "waiting for the host to dispatch 4.42 ms 4.11 ms −311 µs 32.6 % idle",
        "the step 5.77 ms 4.82 ms −953 µs 100.0 % 235 → 293",
    ):
        assert said in text


def test_it_is_one_file_that_runs_its_own_scripts_only(comparison: Comparison) -> None:
    page = render(comparison)
    parsed = Parsed(page)
    policy = next(each["content"] for each in parsed.all("meta") if each.get("http-equiv"))
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for _, text in parsed.scripts]
    assert rules["script-src"].split() == [f"'sha256-{each}'" for each in hashes]
    assert rules["default-src"] == "'none'"
    assert not re.search(r"https?://|url\(|@import", page)
    assert len(page.encode()) < 500_000


def test_hostile_names_are_text(comparison: Comparison) -> None:
    usual, nasty = Parsed(render(comparison)), Parsed(render(hostile(comparison)))
    assert {tag for tag, _ in nasty.elements} == {tag for tag, _ in usual.elements}
    assert len(nasty.scripts) == len(usual.scripts)
    assert [name for _, each in nasty.elements for name in each if name.startswith("on")] == []


@needs_browser
def test_nothing_is_refused_and_bars_are_drawn(page: Page, comparison: Comparison) -> None:
    assert page.console == []
    widths = page.evaluate(
        "[...document.querySelectorAll('#difference .bar')].map((bar) => bar.getBoundingClientRect().width)"
    )
    assert len(widths) == len(parts(comparison))
    assert max(widths) == widths[0] > 40


@needs_browser
def test_tables_sort_search_fold_and_link(page: Page) -> None:
    assert shown(page, "layers")[:3] == ["▾\n(model)", "▾\ntransformer", "wte"]
    click(page, "#tab-ops")
    assert shown(page, "ops")[0] == "aten::_efficient_attention_forward"
    click(page, "#table-ops thead th:nth-child(6) button")
    assert shown(page, "ops")[0] == "aten::bmm"
    enter(page, "#table-ops input", "soft")
    assert shown(page, "ops") == ["aten::_softmax"]
    page.evaluate("location.hash = '#kernels-2'")
    page.wait_for("document.querySelector('tr.found')?.id === 'kernels-2'")
    assert page.evaluate("document.querySelector('#tab-kernels').ariaSelected") == "true"


@needs_browser
def test_the_theme_switches(page: Page) -> None:
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    click(page, "#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_and_no_wider_than_a_phone(comparison: Comparison, tmp_path: Path, scheme: str) -> None:
    with opened(tmp_path, comparison, width=360) as page:
        page.prefer(scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        if not AXE.is_file():
            pytest.skip("needs: npm install --no-save axe-core@4.14.1")
        page.evaluate(f"{AXE.read_text('utf-8')};0")
        assert page.evaluate(FINDINGS) == []
