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
    """Return the config.json of a GPT-2 with two layers and 64 positions."""
    return TINY_GPT2


@pytest.fixture
def tiny_gpt2(tmp_path: Path, tiny_config: dict[str, object]) -> str:
    """Return a writable directory with that config.json."""
    folder = tmp_path / "tiny-gpt2"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny_config))
    return str(folder)
