"""Two runs are timed again in turn."""

import json

import pytest
from tiny_models import settings_of

from tracekit.analyzers.check import Rules, latency_in_turn
from tracekit.analyzers.core import InputError
from tracekit.check.checking import timed_in_turn
from tracekit.measure import jobs


@pytest.mark.slow
def test_a_step_of_many_tokens_takes_longer_in_turn(tmp_path):
    short = settings_of("gpt2", tmp_path / "gpt2", gpu="", device="cpu", seq_len=4)
    blocks = jobs.blocks_in_turn(short, short.changed(seq_len=64, batch_size=8), 1.0)
    change = latency_in_turn(blocks, Rules())
    assert len(blocks) >= 3
    assert change.after_ns > change.before_ns  # whether the interval excludes 1 depends on how busy the machine is
    assert change.ratio.low < change.ratio.value < change.ratio.high


def test_modelled_runs_cannot_be_timed(tmp_path):
    settings = settings_of("gpt2", tmp_path / "gpt2")
    (tmp_path / "run.json").write_text(json.dumps({"settings": settings.as_dict()}))
    with pytest.raises(InputError, match="The run is modelled"):
        timed_in_turn(tmp_path, tmp_path, wall_s=1.0)
