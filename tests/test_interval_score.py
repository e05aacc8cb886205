"""The published interval score is that of the committed rows, and width does not win it."""

import math
from pathlib import Path

import pytest

from benchmarks.accuracy import interval_score
from benchmarks.fitting import scripts

PAGE = Path(__file__).parents[1] / "docs" / "diagnosis.md"


def test_a_hit_costs_its_width_and_a_miss_thirteen_times_what_it_misses_by() -> None:
    assert scripts.score(1.0, 2.0, 1.5) == pytest.approx(math.log(2))
    assert scripts.score(1.0, 2.0, 4.0) == pytest.approx(math.log(2) + 2 / 0.15 * math.log(2))
    assert scripts.score(0.1, 100.0, 1.5) > scripts.score(1.0, 2.0, 1.5)


def test_the_page_has_the_table_of_the_committed_rows() -> None:
    assert interval_score.text() in PAGE.read_text("utf-8"), "run python -m benchmarks accuracy.interval_score"


def test_scripts_score_better_than_with_the_widths_of_the_earlier_version() -> None:
    assert interval_score.gain_on_earlier() < 0.8
