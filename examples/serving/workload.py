"""The workload of the serving samples: two requests to a Llama of two layers with random weights.

128 tokens fit in a batch, so the second prompt is cut: 90 + 38 tokens, then 22 beside a token of the first, then one
token of each.
"""

import gzip
import json
from pathlib import Path

BATCH_TOKENS = 128
PROMPTS = [[3 + i % 200 for i in range(length)] for length in (90, 60)]
NEW_TOKENS = (3, 2)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}
_ENVIRONMENT = ("host_name", "traceName")


def write_model(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(folder)


def keep(recorded: Path, sample: Path) -> None:
    """Copy the trace in `recorded`, without the header's fields that name the machine."""
    (trace,) = recorded.glob("*.json.gz")
    content = json.loads(gzip.decompress(trace.read_bytes()))
    kept = {key: value for key, value in content.items() if key not in _ENVIRONMENT}
    text = json.dumps(kept, separators=(",", ":"))
    sample.write_bytes(gzip.compress(text.encode(), mtime=0))
