"""Train a model of GPT-2's shape, and a small draft of it, on the bundled text.

python examples/studies/quality/train.py MODELS [--device cpu --tiny]

MODELS receives `small-gpt` and `draft` as transformers writes them, with their tokenizer, and train.txt, held_out.txt.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from texts import VOCABULARY, WINDOW, batch, perplexity, text, tokens, train_tokenizer, unigram_perplexity
from torch import Tensor, nn
from transformers import OPTConfig, OPTForCausalLM

SHAPES = {"small-gpt": (12, 768, 12), "draft": (2, 256, 4)}
"""Layers, width, heads. OPT is GPT-2 with nn.Linear, which libraries of quantization look for."""
_TINY = {"small-gpt": (2, 128, 2), "draft": (1, 64, 1)}
_CHECK_EVERY, _PATIENCE = 20, 6


def train_models(folder: Path, device: str, tiny: bool) -> dict[str, Any]:
    """Train both models and return what was reached."""
    torch.manual_seed(0)
    sqlite = text("sqlite")
    tokenizer = train_tokenizer(sqlite.train)
    train, held_out = (tokens(tokenizer, each, device) for each in (sqlite.train, sqlite.held_out))
    reached: dict[str, Any] = {
        "tokens": len(train),
        "held_out_tokens": len(held_out),
        "unigram_perplexity": unigram_perplexity(train, held_out),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, shape in (_TINY if tiny else SHAPES).items():
        model = _built(*shape).to(device)
        reached[name] = _trained(model, train, held_out, steps=20 if tiny else 800, size=4 if tiny else 32)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        print(name, reached[name], flush=True)
    (folder / "train.txt").write_text(sqlite.train)
    (folder / "held_out.txt").write_text(sqlite.held_out)
    return reached


def _built(layers: int, width: int, heads: int) -> OPTForCausalLM:
    sizes = {"hidden_size": width, "word_embed_proj_dim": width, "ffn_dim": 4 * width}
    config = OPTConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=WINDOW,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        activation_function="gelu",
        dropout=0.2,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        **sizes,
    )
    return OPTForCausalLM(config)


def _trained(model: nn.Module, train: Tensor, held_out: Tensor, steps: int, size: int) -> dict[str, float]:
    """Train until the held-out perplexity no longer falls, and leave the best weights in the model."""
    started, generator = time.monotonic(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-4, total_steps=steps, pct_start=0.1)
    best, best_at, weights = float("inf"), 0, {}
    for step in range(1, steps + 1):
        ids = batch(train, size, generator)
        with torch.autocast(ids.device.type, torch.bfloat16):
            loss = model.train()(input_ids=ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % _CHECK_EVERY == 0:
            reached = perplexity(model, held_out)
            if reached < best:
                best, best_at = reached, step
                weights = {name: value.clone() for name, value in model.state_dict().items()}
            elif step - best_at >= _PATIENCE * _CHECK_EVERY:
                break
    model.load_state_dict(weights)
    parameters = sum(each.numel() for each in model.parameters())
    return {"perplexity": best, "steps": best_at, "seconds": time.monotonic() - started, "parameters": parameters}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    print(train_models(args.models, args.device, args.tiny))
