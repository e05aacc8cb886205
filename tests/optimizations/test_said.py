"""What optimizations say of themselves stands in optimizations.toml."""

import tomllib
from pathlib import Path

from tracekit.advise import optimization
from tracekit.advise.catalogue import KNOWN
from tracekit.advise.optimization import Optimization

TABLE = Path(optimization.__file__).parent / "optimizations" / "optimizations.toml"


def test_every_section_is_said_by_an_optimization():
    ids = {each.id for each in KNOWN}
    said = tomllib.loads(TABLE.read_text())
    assert set(said) <= ids and len(said) > 30
    assert {name for row in said.values() for name in row} <= set(Optimization.__annotations__)


def test_a_plug_in_may_have_a_file_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "optimizations.toml").write_text('[mine]\ntitle = "Mine"\ncaveats = ["one"]\nrecipe = "do it"\n')
    (tmp_path / "own_advice.py").write_text(
        "from tracekit.advise.optimization import Optimization\n\n\nclass Mine(Optimization):\n    id = 'mine'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = __import__("own_advice").Mine
    assert (mine.title, mine.caveats, mine.recipe) == ("Mine", ("one",), "do it")
