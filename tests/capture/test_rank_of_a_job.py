"""A script under torchrun writes one trace per rank, which states its rank."""

import pytest
from click.testing import CliRunner

from tracekit.analyzers.trace import reading
from tracekit.cli import main
from tracekit.run import Place, place


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "GROUP_RANK": "1"}, Place(3, 8, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, Place(3, 8, 0)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"WORLD_SIZE": "8"}, None),
        ({"RANK": "first", "WORLD_SIZE": "8"}, None),
    ],
)
def test_the_place_in_a_job(monkeypatch, environment, expected):
    for name in ("RANK", "WORLD_SIZE", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert place() == expected


def test_each_rank_writes_its_own_trace(monkeypatch, tmp_path):
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "GROUP_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "train.py"
    script.write_text("import torch\ntorch.ones(64, 64) @ torch.ones(64, 64)\n")
    run = CliRunner().invoke(main, ["run", "-o", str(tmp_path / "job"), str(script)])
    assert run.exit_code == 0, run.output
    assert "tracekit ranks" not in run.output, "rank 0 says what is next"
    metadata = reading.load(tmp_path / "job" / "rank-5").metadata
    assert (metadata.rank, metadata.world_size, metadata.host) == (5, 8, "node 2")
