"""axe reports no violation."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Page, chromium
from pages import opened

from tracekit.analyzers.results import Analysis

AXE = Path(os.environ.get("NODE_PATH", Path(__file__).parents[2] / "node_modules")) / "axe-core" / "axe.min.js"
FINDINGS = """
    axe.run().then(({ violations }) => violations.map((each) => [each.id, each.nodes.map((node) => node.target[0])]))
"""

pytestmark = pytest.mark.skipif(
    (chromium() is None or not AXE.is_file()) and not os.environ.get("CI"),
    reason="needs Chromium, and: npm install --no-save axe-core@4.14.1",
)


@pytest.fixture(scope="module", params=[1400, 360])
def page(
    tmp_path_factory: pytest.TempPathFactory, modelled: Analysis, request: pytest.FixtureRequest
) -> Iterator[Page]:
    with opened(tmp_path_factory.mktemp("page"), modelled, plots=True, width=request.param) as page:
        page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        page.evaluate(f"{AXE.read_text('utf-8')};0")
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Page, scheme: str) -> None:
    page.prefer(scheme)
    assert page.evaluate(FINDINGS) == []
