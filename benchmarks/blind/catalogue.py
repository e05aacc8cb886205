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
    """The round that draws it first, and before which it is never used for development; 0: not held out."""
    sdpa: bool = True
    """It can attend by scaled_dot_product_attention as well as by attention that is written out."""
    static_cache: bool = True
    """It decodes on a cache of fixed size."""
    longest: int = 2048
    """Tokens of a sequence at most."""
    tiny: dict[str, Any] = field(default_factory=dict)
    """Settings of its tiny version, where those of all models do not do (building.py)."""

    @property
    def has_length(self) -> bool:
        """Its inputs are sequences whose length can be chosen."""
        return self.kind not in ("vision", "audio", "diffusion")

    @property
    def depth(self) -> int:
        """Layers, or blocks of all stages."""
        settings = self.settings
        names = ("num_hidden_layers", "num_layers", "n_layer", "encoder_layers")
        return next((settings[name] for name in names if name in settings), 0) or sum(settings["depths"])


def models() -> dict[str, Model]:
    rows = tomllib.loads((HERE / "models.toml").read_text(encoding="utf-8"))
    return {name: _model(name, row) for name, row in rows.items()}


def _model(name: str, row: dict[str, Any]) -> Model:
    row = {"class_name" if key == "class" else key: value for key, value in row.items()}
    return Model(name=name, **{**row, "workloads": tuple(row["workloads"])})
