"""The accuracy page: it is what committed rows say, and short; signatures are read back."""

import json

import pytest

from benchmarks import table
from benchmarks.accuracy import page
from benchmarks.measurements.own import read, written


def test_a_table_sets_numbers_flush_right() -> None:
    assert table(("a", "b"), [("x", 1)], 1) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_a_signature_and_back() -> None:
    shapes = [[8, 768], [768, 2304], [], [], [], [[2], [3, 4]], []]
    types = ["c10::BFloat16", "c10::BFloat16", "Scalar", "ScalarList", "Scalar", "TensorList", ""]
    values = ["", "", "True", "[-1, 2]", "", "", ""]
    strides = [[768, 1], [1, 768], [], [], [], [[1], [4, 1]], []]
    text = written(shapes, types, values, strides)
    assert text == "bf16[8,768] bf16[768,2304]@1,768 True [-1,2] ? {2;3,4} +1"
    back = [json.loads(column) for column in read(text)]
    assert back[:2] == [shapes, types]
    assert back[2] == ["", "", "True", "[-1,2]", "", "", ""]
    assert back[3][:2] == strides[:2]


@pytest.fixture(scope="module")
def text():
    return page.text()


def test_the_page_is_what_its_generator_writes(text):
    assert page.PAGE.read_text(encoding="utf-8") == text, "run python -m benchmarks accuracy.page"


def test_what_readers_are_told_of_all_rounds(text):
    """All rounds, not the best one; hits beside widths; and what chance would give."""
    assert "| **all** |  | 240 | 13 % | 6 % | 97 % | 73 % | 1.31 | 0.78 |" in text
    assert "Three rows, 2 of which were measured, of round 03 are not in its row" in " ".join(text.split())
    assert "In the last round it is 15 of 17, and 11 by chance" in " ".join(text.split())
    assert "| **all** | 438 |" in text


def test_the_pages_on_accuracy_and_results_are_short():
    docs = page.PAGE.parent
    lines = {path.name: path.read_text(encoding="utf-8").count("\n") for path in docs.glob("*.md")}
    assert lines["accuracy.md"] + lines["results.md"] <= 400
    assert sum(lines.values()) <= 6000
