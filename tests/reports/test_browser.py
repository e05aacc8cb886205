"""The page in a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, chromium
from hostile import hostile

from analyzers.results import Analysis
from reports.html import render

pytestmark = pytest.mark.skipif(chromium() is None and not os.environ.get("CI"), reason="needs Chromium")

DRAWN = "document.body.dataset.drawn === 'yes'"


def opened(folder: Path, analysis: Analysis) -> Page:
    path = folder / "report.html"
    path.write_text(render(analysis), "utf-8")
    return Page(path)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, analysis: Analysis) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("page"), analysis) as page:
        page.wait_for(DRAWN)
        yield page


def shown(page: Page, table: str) -> list[str]:
    rows = f"[...document.querySelectorAll('#table-{table} tbody tr')].filter((row) => !row.hidden)"
    return page.evaluate(f"{rows}.map((row) => row.cells[0].innerText.trim())")


def click(page: Page, selector: str) -> None:
    page.evaluate(f"document.querySelector(`{selector}`).click()")


def enter(page: Page, selector: str, value: str) -> None:
    event = "input" if "input" in selector else "change"
    page.evaluate(
        f"{{ const field = document.querySelector(`{selector}`); field.value = `{value}`; "
        f"field.dispatchEvent(new Event('{event}')); }}"
    )


def test_charts_are_drawn_and_nothing_is_refused(page: Page) -> None:
    assert page.evaluate("document.querySelectorAll('#icicle .box').length") > 10
    assert page.evaluate("document.querySelectorAll('#plot-roofline .points path').length") == 4
    assert page.evaluate("document.querySelectorAll('#plot-timeline path.js-line').length") >= 8
    assert page.console == []


def test_sorting(page: Page) -> None:
    by_time = shown(page, "kernels")
    assert by_time[0] == "gemv2T_kernel_val<float>"
    click(page, "#table-kernels thead th:nth-child(1) button")
    assert shown(page, "kernels") == sorted(by_time, key=str.lower)
    assert page.evaluate("document.querySelector('#table-kernels thead th').ariaSort") == "ascending"
    click(page, "#table-kernels thead th:nth-child(2) button")
    assert shown(page, "kernels")[0] == "gemv2T_kernel_val<float>"


def test_searching_and_filtering(page: Page) -> None:
    enter(page, "#table-layers input", "h.3. conv1d")
    assert shown(page, "layers") == [
        f"transformer.h.3.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    ]
    assert page.evaluate("document.querySelector('#table-layers .count').textContent") == "4 of 125 rows"
    enter(page, "#table-layers input", "")
    enter(page, "#table-layers select", "latency")
    assert len(shown(page, "layers")) == 38
    enter(page, "#table-layers select", "")


def test_layers_fold(page: Page) -> None:
    # The model, its transformer, 14 below that, the head, and what is in no layer.
    assert len(shown(page, "layers")) == 17
    click(page, "#layers-3 button.twist")
    assert shown(page, "layers")[3:8] == ["▾\nh.0", "ln_1", "▸\nattn", "ln_2", "▸\nmlp"]
    assert page.evaluate("document.querySelector('#layers-3 button.twist').ariaExpanded") == "true"
    click(page, "#layers-3 button.twist")
    assert len(shown(page, "layers")) == 17


def test_a_point_of_the_roofline_leads_to_its_row(page: Page) -> None:
    row = "document.querySelector('#table-kernels tr.found')?.cells[0].innerText.trim()"
    page.evaluate("document.getElementById('plot-roofline').emit('plotly_click', { points: [{ customdata: [1] }] })")
    assert page.evaluate(row) == "fmha_cutlassF_f32"


def test_slash_searches(page: Page) -> None:
    page.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }))")
    assert page.evaluate("document.activeElement.ariaLabel") == "Search layers"


def test_the_switch_repaints_the_charts(page: Page) -> None:
    colour = "getComputedStyle(document.querySelector('#plot-roofline .points path')).fill"
    page.prefer("light")
    light = page.evaluate(colour)
    click(page, "#theme")
    page.wait_for(f"{colour} !== '{light}'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 20, 23)"
    click(page, "#theme")
    page.wait_for(f"{colour} === '{light}'")


def test_it_fits_a_phone(page: Page) -> None:
    page.resize(360, 780)
    page.wait_for("document.querySelector('#plot-roofline .main-svg').getBoundingClientRect().width < 360")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.resize(1400, 1000)


def test_a_link_opens_its_row(tmp_path: Path, analysis: Analysis) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(analysis), "utf-8")
    with Page(path, fragment="layers-6") as page:
        page.wait_for("document.querySelector('#layers-6').classList.contains('found')")
        assert page.evaluate("document.querySelector('#layers-6').hidden") is False


def test_hostile_names_break_nothing(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, hostile(analysis)) as page:
        page.wait_for(DRAWN)
        assert page.evaluate("document.title") == "H200 – tracekit"
        assert page.evaluate("document.querySelectorAll('img, main a:not([href^=\"#\"])').length") == 0
        assert page.evaluate("document.querySelectorAll('#icicle .box').length") > 5
        assert page.evaluate("document.documentElement.scrollWidth") <= 1400
        assert page.console == []
