"""The accuracy page: targets come first, chapters without data say so, and short signatures are read back."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from accuracy import constants, page
from accuracy.chapter import Chapter, NothingToCompareError, at_least, at_most, table, within
from measurements.signatures import read, written


def test_targets_stand_first_and_missing_measurements_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def present(shared: Path) -> Chapter:
        return Chapter("Found", f"In {shared.name}.", (at_most("error", 0.1, 0.123), at_least("sign", 0.98, 1.0)))

    def absent(shared: Path) -> Chapter:
        raise NothingToCompareError(f"no file in {shared.name}.")

    for name, chapter in (("present", present), ("absent", absent)):
        module = ModuleType(f"accuracy.{name}")
        module.chapter = chapter  # type: ignore[attr-defined]
        module.__spec__ = page.__spec__
        monkeypatch.setitem(sys.modules, f"accuracy.{name}", module)
    monkeypatch.setattr(page, "CHAPTERS", {"present": "Present", "absent": "Absent", "unwritten": "Unwritten"})
    text = page.assemble(tmp_path)
    assert text.index("| error | ≤ 10 % | 12.3 % | **missed** |") < text.index("## Found")
    assert "| sign | ≥ 98 % | 100.0 % | met |" in text
    assert f"## Absent\n\nNot compared in this run: no file in {tmp_path.name}." in text
    assert "## Unwritten\n\nNot compared yet." in text


def test_a_share_inside_two_limits() -> None:
    verdicts = [within("inside", 0.8, 0.95, measured).met for measured in (0.79, 0.8, 0.95, 0.96)]
    assert verdicts == [False, True, True, False]


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


def test_constants_are_counted_once_with_their_intervals(tmp_path):
    code = 'A = Interval(1.5, 3.0, 4.0)\nB: float = 5\nC = {"x": (7, 0.5), "y": 1}\nD = "9"\nlocal = 8\n'
    (tmp_path / "some.py").write_text(code)
    (tmp_path / "some.toml").write_text('[fit]\nus = 3\nspan_us = [1, 2, 4]\nrows = 40\nsource = "7 runs"\n')
    assert constants._of_modules(tmp_path) == [True, False, False, False]
    assert constants._of_table(tmp_path / "some.toml") == [False, True]


def test_defined_numbers_are_told_apart_by_their_file(monkeypatch, tmp_path):
    folder = tmp_path / "analyzers" / "costs"
    folder.mkdir(parents=True)
    (folder / "bytes.py").write_text("SIZE = 4\n")
    (folder / "limit.py").write_text("LIMIT = 0.3\nSPAN = Interval(3, 4, 5)\n")
    monkeypatch.setattr(constants, "_DEFINED", {"analyzers/costs/bytes.py": "bytes of types"})
    monkeypatch.setattr(constants, "_MODULES", {"analyzers/costs": "costs"})
    assert constants.counts(tmp_path) == [("costs", "`analyzers/costs`", 3, 1, 2, 1)]


def test_every_file_of_defined_numbers_has_some():
    counted = {path: len(constants._of_modules(constants._ROOT / path)) for path in constants._DEFINED}
    assert all(counted.values()), counted
