"""Actions of the browser tests on a page."""

from pathlib import Path

from browser import Page

from tracekit.analyzers.results import Analysis
from tracekit.reports.answer import render

DRAWN = "document.body.dataset.drawn === 'yes'"


_RENDERED: dict[int, tuple[Analysis, str]] = {}
"""Analyses with their pages, by the analysis's id: most tests open the same one."""


def opened(folder: Path, analysis: Analysis, *, plots: bool = False, **how: object) -> Page:
    """Open the page of an analysis; with `plots`, draw them, which takes most of the time."""
    path = folder / "report.html"
    if id(analysis) not in _RENDERED:
        _RENDERED[id(analysis)] = analysis, render(analysis)
    path.write_text(_RENDERED[id(analysis)][1], "utf-8")
    page = Page(path, **how)  # type: ignore[arg-type]
    page.wait_for("document.body.dataset.ready")
    if plots:
        drawn(page)
    return page


def drawn(page: Page) -> None:
    """Scroll to every plot, so that it is drawn."""
    for at in range(page.evaluate("document.querySelectorAll('.plot').length")):
        plot = f"document.querySelectorAll('.plot')[{at}]"
        page.wait_for(f"{plot}.scrollIntoView({{ behavior: 'instant' }}), Boolean({plot}.data)")
    page.wait_for(DRAWN)
    page.evaluate("scrollTo({ top: 0, behavior: 'instant' })")


def shown(page: Page, table: str) -> list[str]:
    """Return the names in the visible rows of a table."""
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


def press(page: Page, *keys: str) -> None:
    """Send key strokes to the focused element."""
    for key in keys:
        for kind in ("rawKeyDown", "keyUp"):
            page.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_CODES.get(key, 0))


_CODES = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}
