"""The page in a real browser."""

import base64
import os
from collections.abc import Iterator
from csv import reader
from pathlib import Path

import pytest
from browser import Page, chromium
from hostile import hostile
from msgspec.structs import replace
from pages import click, enter, opened, press, shown

from tracekit.analyzers.results import Analysis

pytestmark = pytest.mark.skipif(chromium() is None and not os.environ.get("CI"), reason="needs Chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, analysis: Analysis) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("page"), analysis, plots=True) as page:
        yield page


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


def test_the_theme_is_kept_and_there_before_the_first_paint(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, analysis) as page:
        page.prefer("light")
        click(page, "#theme")
        theme = "document.documentElement.dataset.theme"
        early = f"window.first = new Promise((tell) => requestAnimationFrame(() => tell({theme})))"
        page.send("Page.addScriptToEvaluateOnNewDocument", source=early)
        page.send("Page.reload")
        page.wait_for("document.body?.dataset.ready")
        assert page.evaluate("window.first") == "dark"


def test_tabs_answer_the_arrow_keys(page: Page) -> None:
    panels = "[...document.querySelectorAll('#tables .panel')]"
    visible = f"{panels}.filter((each) => each.checkVisibility()).map((each) => each.id)"
    click(page, "#tab-layers")
    assert page.evaluate(visible) == ["panel-layers"]
    page.evaluate("document.getElementById('tab-layers').focus()")
    press(page, "ArrowRight", "ArrowRight")
    assert page.evaluate(visible) == ["panel-kernels"]
    assert page.evaluate("document.activeElement.id") == "tab-kernels"
    assert page.evaluate("document.activeElement.ariaSelected") == "true"


def test_a_column_says_what_it_means(page: Page) -> None:
    tip = "document.querySelector('#tip:popover-open')?.textContent"
    page.evaluate("document.querySelector('#table-layer_types th:nth-child(3) button').focus({preventScroll: true})")
    assert page.evaluate(tip).startswith(
        "share of the busy time: overlapping work on a device shares each nanosecond equally"
    )
    page.evaluate("document.activeElement.blur()")
    assert page.evaluate(tip) is None


def made(page: Page, table: str) -> list[str]:
    page.evaluate("window.made = []; URL.createObjectURL = (blob) => { made.push(blob); return 'blob:none'; }")
    page.evaluate("HTMLAnchorElement.prototype.click = function () { made.push(this.download); }")
    page.evaluate(f"document.querySelector('#table-{table} .take button:last-child').click()")
    assert page.evaluate("made[1]") == f"{table}.csv"
    return page.evaluate("made[0].text()").splitlines()


def test_csv_of_the_rows_shown(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, analysis) as page:
        enter(page, "#table-layers input", "h.3.attn")
        lines = made(page, "layers")
        assert lines[0].startswith("layer,type,calls,GPU time (µs),share (%),own time (µs)")
        assert [line.split(",")[0] for line in lines[1:]] == [
            f"transformer.h.3.attn{name}" for name in ("", ".c_attn", ".c_proj")
        ]
        assert lines[1].split(",")[3] == "13"
        assert made(page, "kernels")[1].split(",")[0] == "gemv2T_kernel_val<float>"


def test_a_spreadsheet_takes_no_name_for_a_formula(tmp_path: Path, analysis: Analysis) -> None:
    ops = analysis.ops.assign(name=["=HYPERLINK(1)", "-1+cmd", "@x", 'a"b', *analysis.ops["name"][4:]])
    with opened(tmp_path, replace(analysis, ops=ops)) as page:
        names = [row[0] for row in reader(made(page, "ops"))]
    assert {"'=HYPERLINK(1)", "'-1+cmd", "'@x", 'a"b'} <= set(names)


def test_on_paper_it_is_light_and_whole(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, analysis, plots=True) as page:
        page.prefer("dark")
        enter(page, "#table-layers input", "transformer.h.")
        assert len(shown(page, "layers")) == 120
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.send("Emulation.setEmulatedMedia", media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate("[...document.querySelectorAll('details')].every((part) => part.open)")
        panels = "[...document.querySelectorAll('#tables .panel')].every((each) => each.checkVisibility())"
        assert page.evaluate(panels)
        assert page.evaluate("document.querySelector('#theme').checkVisibility()") is False
        rows = "[...document.querySelectorAll('#table-layers tbody tr')].filter((row) => row.checkVisibility()).length"
        assert page.evaluate(rows) == 25
        page.send("Emulation.setEmulatedMedia", media="screen")
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.evaluate("'theme' in document.documentElement.dataset") is False
        assert len(base64.b64decode(page.send("Page.printToPDF")["data"])) > 20_000


def test_it_fits_a_phone(page: Page) -> None:
    page.resize(360, 780)
    page.wait_for("document.querySelector('#plot-roofline .main-svg').getBoundingClientRect().width < 360")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.resize(1400, 1000)


def test_a_link_opens_its_row(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, analysis, fragment="layers-6") as page:
        page.wait_for("document.querySelector('#layers-6').classList.contains('found')")
        assert page.evaluate("document.querySelector('#layers-6').hidden") is False


def test_hostile_names_break_nothing(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, hostile(analysis), plots=True) as page:
        assert page.evaluate("document.title") == "H200 – tracekit"
        assert page.evaluate("document.querySelectorAll('img, main a:not([href^=\"#\"])').length") == 0
        assert page.evaluate("document.querySelectorAll('#icicle .box').length") > 5
        assert page.evaluate("document.documentElement.scrollWidth") <= 1400
        assert page.console == []
