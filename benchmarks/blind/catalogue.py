"""The list of models in models.toml."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Model:
    name: str
    of: str
    """The published model."""
    kind: str
    """dense, moe, encoder, encoder-decoder, vision, audio, state-space or diffusion."""
    class_name: str
    workloads: tuple[str, ...]
    """The workloads that the model supports: prefill (one forward pass), decode and train."""
    settings: dict[str, Any]
    held_out: int = 0
    """The first round that may draw it, before which it is not used for development; 0 if it is not held out."""
    sdpa: bool = True
    """Whether it supports both scaled_dot_product_attention and eager attention."""
    static_cache: bool = True
    """Whether it can decode with a static cache."""
    longest: int = 2048
    """Maximum number of tokens in a sequence."""
    tiny: dict[str, Any] = field(default_factory=dict)
    """Settings of its tiny version, if it needs others than all models (building.py)."""

    @property
    def has_length(self) -> bool:
        """Whether its inputs are sequences of any length."""
        return self.kind not in ("vision", "audio", "diffusion")

    @property
    def depth(self) -> int:
        """Number of layers, or of blocks in all stages."""
        settings = self.settings
        names = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers")
        return next((settings[name] for name in names if name in settings), 0) or sum(settings["depths"])


def models() -> dict[str, Model]:
    rows = tomllib.loads((HERE / "models.toml").read_text(encoding="utf-8"))
    return {name: _model(name, row) for name, row in rows.items()}


def _model(name: str, row: dict[str, Any]) -> Model:
    row = {"class_name" if key == "class" else key: value for key, value in row.items()}
    return Model(name=name, **{**row, "workloads": tuple(row["workloads"])})
