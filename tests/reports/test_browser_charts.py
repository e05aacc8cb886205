"""The charts, in a real browser."""

import os
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from browser import Page, chromium
from msgspec.structs import replace
from pages import click, enter, opened, press, shown

from tracekit.analyzers.results import Analysis
from tracekit.reports.answer import render

pytestmark = pytest.mark.skipif(chromium() is None and not os.environ.get("CI"), reason="needs Chromium")

BOXES = "[...document.querySelectorAll('#icicle .box')]"
CRUMBS = "[...document.querySelectorAll('#icicle-crumbs button')].map((each) => each.textContent)"
PICKED = "document.querySelector('#icicle-picked .what bdi').textContent"
FOUND = "document.querySelector('tr.found')?.id"


@pytest.fixture
def page(tmp_path: Path, analysis: Analysis) -> Iterator[Page]:
    with opened(tmp_path, analysis) as page:
        yield page


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory, analysis: Analysis) -> Iterator[Page]:
    """Return a page with its plots. Each test uses another plot."""
    with opened(tmp_path_factory.mktemp("page"), analysis, plots=True) as page:
        yield page


def test_plots_wait_until_they_are_near_or_go_on_paper(tmp_path: Path, analysis: Analysis) -> None:
    path = tmp_path / "report.html"
    path.write_text(render(analysis), "utf-8")
    with Page(path, height=600) as page:
        page.wait_for("document.body.dataset.ready")
        assert boxes(page)
        assert page.evaluate("'Plotly' in window") is False
        page.wait_for("source !== null")
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        assert page.evaluate("document.body.dataset.drawn") == "yes"
        assert points(page) == 4


def boxes(page: Page) -> list[str]:
    return page.evaluate(f"{BOXES}.map((each) => each.ariaLabel)")


def by_instance(page: Page) -> None:
    click(page, "[name=icicle-by][value=instance]")


def test_types_are_merged_and_instances_are_not(page: Page) -> None:
    # Of 387.7 us the 12 blocks take 28.6 us each.
    merged = boxes(page)
    assert "12 × GPT2Block 89\u00a0%" in merged
    assert not any(label.startswith("h.3 ") for label in merged)
    by_instance(page)
    single = boxes(page)
    assert sum(label.startswith("h.") for label in single) == 12
    assert len(single) > len(merged)


def test_the_keys_move_and_zoom(page: Page) -> None:
    by_instance(page)
    page.evaluate("document.getElementById('icicle').focus()")
    press(page, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight")
    assert page.evaluate(PICKED) == "transformer.h.0"
    press(page, "ArrowRight", "Enter")
    assert page.evaluate(PICKED) == "transformer.h.1"
    assert page.evaluate(CRUMBS)[-2:] == ["transformer", "h.1"]
    assert page.evaluate("location.hash") == "#layer=transformer.h.1"
    assert boxes(page)[0].startswith("h.1 ")
    press(page, "Escape")
    assert page.evaluate(CRUMBS)[-1] == "transformer"
    active = page.evaluate("document.getElementById('icicle').getAttribute('aria-activedescendant')")
    assert page.evaluate(f"document.getElementById('{active}').ariaSelected") == "true"


def test_a_search_marks_boxes_and_says_their_share(page: Page) -> None:
    hits = "[...document.querySelectorAll('#icicle .hit')].map((each) => each.ariaLabel)"
    found = "document.getElementById('icicle-found').textContent"
    enter(page, "input#icicle-search", "gpt2BLOCK")
    assert page.evaluate(hits) == ["12 × GPT2Block 89\u00a0%"]
    assert page.evaluate(found).startswith("1 box, ")
    assert "89\u00a0% of " in page.evaluate(found)
    enter(page, "input#icicle-search", "gpt2")
    assert page.evaluate(found).endswith(", 100\u00a0% of the run")
    enter(page, "input#icicle-search", "no such name")
    assert (page.evaluate(hits), page.evaluate(found)[:8]) == ([], "0 boxes,")
    enter(page, "input#icicle-search", "")
    assert page.evaluate("document.querySelectorAll('#icicle .miss, #icicle .hit').length") == 0
    assert page.evaluate(found) == ""


def test_the_search_is_moved_through_with_the_keys(page: Page) -> None:
    by_instance(page)
    enter(page, "input#icicle-search", "gpt2attention")
    page.evaluate("document.getElementById('icicle-search').focus()")
    press(page, "Enter")
    assert page.evaluate(PICKED) == "transformer.h.0.attn"
    press(page, "Enter")
    assert page.evaluate(PICKED) == "transformer.h.1.attn"
    press(page, "Escape")
    assert page.evaluate("document.getElementById('icicle-search').value") == ""


def test_a_click_zooms_and_a_crumb_leads_back(page: Page) -> None:
    by_instance(page)
    page.evaluate(f"{BOXES}.find((each) => each.ariaLabel.startsWith('h.5 ')).click()")
    assert page.evaluate(CRUMBS)[-1] == "h.5"
    page.evaluate("document.querySelector('#icicle-crumbs button').click()")
    assert len(page.evaluate(CRUMBS)) == 1


def test_a_link_to_a_layer_zooms_into_it(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, analysis, fragment="layer=transformer.h.3.attn") as page:
        assert page.evaluate(CRUMBS)[-2:] == ["h.3", "attn"]
        click(page, "#icicle-picked a")
        row = analysis.layers.index[analysis.layers["path"] == "transformer.h.3.attn"][0]
        assert page.evaluate(FOUND) == f"layers-{row}"
        assert page.evaluate(f"document.getElementById('layers-{row}').checkVisibility()")


def test_links_to_a_type_an_op_and_a_kernel(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, analysis, fragment="type=GPT2Attention") as page:
        assert page.evaluate(PICKED) == "GPT2Attention"
        for link, table, name in (
            ("kernel", "kernels", "fmha_cutlassF_f32"),
            ("op", "ops", "aten::gemm"),
        ):
            page.evaluate(f"location.hash = '{link}={name}'")
            row = getattr(analysis, table)["name"].tolist().index(name)
            page.wait_for(f"{FOUND} === '{table}-{row}'")


def test_the_tables_are_held_to_what_is_selected(tmp_path: Path, analysis: Analysis) -> None:
    with opened(tmp_path, analysis, fragment="layer=transformer.h.3.mlp") as page:
        click(page, "#icicle-picked .actions button")
        assert shown(page, "layers") == [f"transformer.h.3.mlp{name}" for name in ("", ".c_fc", ".act", ".c_proj")]
        assert sorted(shown(page, "kernels")) == ["gemv2T_kernel_val<float>", "vectorized_elementwise_kernel<4, gelu>"]
        assert page.evaluate("document.getElementById('narrowed').innerText").startswith("Only what belongs to mlp")
        click(page, "#narrowed-off")
        assert len(shown(page, "kernels")) == len(analysis.kernels)


def test_a_phase_is_all_there_is_of_one(tmp_path: Path, analysis: Analysis) -> None:
    first = analysis.work["layer"] < 20
    phases = analysis.work["phase"].astype(object).mask(first, "prefill").astype("category")
    work = analysis.work.assign(phase=phases)
    with opened(tmp_path, replace(analysis, work=work)) as page:
        total = "document.querySelector('#icicle-picked .facts-line').textContent"
        options = page.evaluate("[...document.querySelector('#icicle-phase')].map((each) => each.text)")
        assert options == ["all", "prefill", "decode"]
        enter(page, "#icicle-phase", "0")
        assert f"{int(first.sum())} launches" in page.evaluate(total)


def points(page: Page) -> int:
    return page.evaluate("document.querySelectorAll('#plot-roofline .points path').length")


def test_the_roofline_shows_layers_too_and_leads_to_their_rows(drawn: Page) -> None:
    assert points(drawn) == 4
    drawn.evaluate("document.getElementById('plot-roofline').emit('plotly_click', { points: [{ customdata: [1] }] })")
    assert drawn.evaluate(FOUND) == "kernels-1"
    click(drawn, "[name=roofline-of][value=layers]")
    drawn.wait_for("document.querySelectorAll('#plot-roofline .points path').length > 50")
    drawn.evaluate("document.getElementById('plot-roofline').emit('plotly_click', { points: [{ customdata: [6] }] })")
    assert drawn.evaluate(FOUND) == "layers-6"


def test_the_timeline_zooms_by_its_buttons(drawn: Page) -> None:
    span = "document.getElementById('plot-timeline').layout.xaxis.range"
    low, high = drawn.evaluate(span)
    click(drawn, "[data-view=closer]")
    drawn.wait_for(f"{span}[0] > {low}")
    near = drawn.evaluate(span)
    assert near[1] - near[0] == pytest.approx((high - low) / 2)
    click(drawn, "[data-view=later]")
    drawn.wait_for(f"{span}[0] > {near[0]}")
    click(drawn, "[data-view=all]")
    drawn.wait_for(f"Math.abs({span}[0] - {low}) < 1e-6")


def test_wide_bars_of_the_timeline_carry_their_names(drawn: Page) -> None:
    names = "[...document.querySelectorAll('#plot-timeline .names span')].map((each) => each.textContent)"
    drawn.evaluate("void Plotly.relayout('plot-timeline', { 'xaxis.range': [0, 0.05] })")
    drawn.wait_for(f"{names}.includes('aten::embedding')")
    assert not any("&" in name or "<b>" in name for name in drawn.evaluate(names))
    click(drawn, "[data-view=all]")


def test_the_timeline_goes_from_step_to_step(tmp_path: Path, analysis: Analysis) -> None:
    steps = analysis.timeline.steps
    two = pd.concat([steps, steps.assign(step=1, wall_ns=steps["wall_ns"] * 2)], ignore_index=True)
    shown = "byId('timeline-step').textContent"
    with opened(tmp_path, replace(analysis, timeline=replace(analysis.timeline, steps=two)), plots=True) as page:
        assert page.evaluate(shown).startswith("Step 1, ")
        page.evaluate("document.querySelector('[data-step=\"-1\"]').focus()")
        click(page, "[data-step='-1']")
        assert page.evaluate(shown).startswith("Step 0, ")
        assert page.evaluate("byId('note-timeline').textContent") == "Step 0, one of 2."
        assert page.evaluate("document.querySelector('[data-step=\"-1\"]').ariaDisabled") == "true"
