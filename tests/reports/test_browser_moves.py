"""The roofline before and after a prediction, in a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, chromium
from pages import click, opened, press, shown

from tracekit.analyzers.results import Analysis

pytestmark = pytest.mark.skipif(chromium() is None and not os.environ.get("CI"), reason="needs Chromium")

PLOT = "document.getElementById('plot-roofline')"
PARTS = ["Conv1D", "LayerNorm", "NewGELUActivation"]


@pytest.fixture
def page(tmp_path: Path, analysis: Analysis) -> Iterator[Page]:
    with opened(tmp_path, analysis, plots=True) as page:
        yield page


def drawn(page: Page, name: str) -> list[float] | None:
    return page.evaluate(f"{PLOT}.data.filter((each) => each.name === '{name}').map(({{ x, y }}) => [...x, ...y])[0]")


def test_a_card_shows_its_arrows_and_rows(page: Page) -> None:
    cards = "[...document.querySelectorAll('[data-moves]')].map((each) => each.dataset.moves)"
    assert page.evaluate(cards) == ["fused-kernels"]
    click(page, "[data-moves=fused-kernels]")
    # FLOP/B, then TFLOP/s: 1.7e8 / 3.4e8 and 3.6e5 / 1.5e5; 1.7e8 / 171 us and 3.6e5 / 9 us.
    assert drawn(page, "predicted") == [0.5, 2.4, 0.9942, 0.04]
    assert len(drawn(page, "as it is") or []) == 6
    assert page.evaluate("document.getElementById('moves-rows').open")
    assert shown(page, "roofline_moves") == PARTS
    assert page.evaluate("document.activeElement.id") == "roofline-moves"
    assert page.evaluate("location.hash") == "#moves=fused-kernels"
    page.evaluate(f"{PLOT}.emit('plotly_click', {{ points: [{{ customdata: [1] }}] }})")
    assert page.evaluate("document.querySelector('tr.found').id") == "roofline_moves-1"
    assert page.console == []


def test_the_keyboard_chooses_and_marks_come_back(page: Page) -> None:
    page.evaluate("document.getElementById('roofline-moves').focus()")
    press(page, "ArrowDown")
    page.wait_for(f"{PLOT}.data.some(({{ name }}) => name === 'predicted')")
    click(page, "[name=roofline-of][value=kernels]")
    assert not drawn(page, "predicted")
    assert page.evaluate("document.getElementById('roofline-moves').value") == ""
    assert page.evaluate("document.querySelectorAll('#plot-roofline .points path').length") == 4


def test_a_link_opens_it(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, analysis, plots=True, fragment="moves=fused-kernels") as page:
        assert drawn(page, "predicted")
        assert shown(page, "roofline_moves") == PARTS
