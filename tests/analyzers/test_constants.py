"""Constants with evidence: each row of a constants.toml has a unit and a source, and its ends are in order."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

from tracekit.analyzers.core import TABLES, Interval, Outcomes, intervals, numbers, outcomes, toml_table
from tracekit.analyzers.results import CAUSES, COUNTER_MEANINGS, GAPS

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for folder in ("tracekit", "analyzers")
    for path in sorted((ROOT / folder).rglob("constants.toml"))
    if path.parent.name != "time"  # of the kernel time model, whose sections have one source
]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_constant_says_where_it_comes_from(path):
    sections = tomllib.loads(path.read_text())
    rows = [row for section in sections.values() for row in section.values()]
    assert rows
    assert all(row["unit"] and row["source"] and row["rows"] >= 0 for row in rows)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_constant_belongs_to_a_file_that_uses_it(path):
    for section, rows in tomllib.loads(path.read_text()).items():
        code = (path.parent / f"{section}.py").read_text()
        assert not [name for name in rows if f'["{name}"]' not in code]


def test_rows_become_what_they_are(tmp_path):
    path = tmp_path / "costs.py"
    path.with_name("constants.toml").write_text(
        "[costs]\na = {worst = 3, expected = 2, best = 1}\nb = {low = 1, expected = 2, high = 3}\nc = {value = 4.0}\n"
    )
    assert outcomes(str(path)) == {"a": Outcomes(3, 2, 1)}
    assert intervals(str(path)) == {"b": Interval(1, 2, 3)}
    assert numbers(str(path)) == {"c": 4.0}


def test_ends_are_in_order(tmp_path):
    path = tmp_path / "costs.py"
    path.with_name("constants.toml").write_text("[costs]\na = {worst = 3, expected = 4, best = 1}\n")
    with pytest.raises(ValueError, match="out of order"):
        outcomes(str(path))


def test_columns_name_every_value_of_theirs():
    meaning = {(table, column.name): column.meaning for table in TABLES.values() for column in table.columns}
    assert ", ".join(CAUSES) in meaning[GAPS, "cause"]
    assert ", ".join(COUNTER_MEANINGS) in meaning[TABLES["counts"], "counter"]


ALL = [path for folder in ("analyzers", "reports", "tracekit") for path in sorted((ROOT / folder).rglob("*.toml"))]


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_python_keeps_of_a_file_is_what_the_file_says(path):
    assert toml_table(path) == toml_table(path) == tomllib.loads(path.read_text())


def test_a_file_that_changed_is_parsed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    path, module = tmp_path / "facts.toml", tmp_path / "facts.py"
    path.write_text("a = 1\n")
    module.write_text("a = 2\n")
    first = toml_table(path)
    first["a"] = 0
    assert toml_table(path) == {"a": 1}
    assert [kept.name.split(".")[:2] for kept in (tmp_path / "__pycache__").iterdir()] == [["facts", "toml"]]
    path.write_text("a = 3\n")
    os.utime(path, (0, 0))
    assert toml_table(path) == {"a": 3}
