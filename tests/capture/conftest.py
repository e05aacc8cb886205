import json
from pathlib import Path

import pytest

TINY_GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "bos_token_id": 0,
    "eos_token_id": 0,
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 64,
    "vocab_size": 100,
}


@pytest.fixture(scope="session")
def tiny_config() -> dict[str, object]:
    """The config.json of a GPT-2 of two layers and 64 positions."""
    return TINY_GPT2


@pytest.fixture
def tiny_gpt2(tmp_path: Path, tiny_config: dict[str, object]) -> str:
    """A directory with that config.json, to read and to write."""
    folder = tmp_path / "tiny-gpt2"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny_config))
    return str(folder)
