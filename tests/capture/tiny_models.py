"""Models of two layers, without dropout, and settings that model a run of them."""

import json
from pathlib import Path
from typing import Any

from tracekit.capture import complete
from tracekit.run import Settings

_SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_TOKENS = {"vocab_size": 100, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0}
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "n_positions": 64,
        "vocab_size": 100,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
    "llama": {"architectures": ["LlamaForCausalLM"], "num_key_value_heads": 2, **_SIZES, **_TOKENS},
    "bert": {
        "architectures": ["BertForMaskedLM"],
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        **_SIZES,
        **_TOKENS,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 100,
        "dropout_rate": 0.0,
        "decoder_start_token_id": 0,
    },
    "vit": {
        "architectures": ["ViTForImageClassification"],
        "image_size": 32,
        "patch_size": 8,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        **_SIZES,
    },
}


def write_model(folder: Path, model: str, changes: dict[str, Any] | None = None) -> Path:
    """Return a model's folder, and write it if it does not exist; `changes` are made to its configuration."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model, **CONFIGS[model], **(changes or {})}))
    return folder


def settings_of(model: str, folder: Path, changes: dict[str, Any] | None = None, **options: Any) -> Settings:
    """Return planned settings; `changes` are made to the model's configuration."""
    write_model(folder, model, changes)
    return complete(Settings(**{"model": str(folder), "gpu": "a100", "device": "model", "seq_len": 16} | options))
