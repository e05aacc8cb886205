"""Train a small Llama and a smaller draft of it on the texts of installed packages.

    python examples/studies/quality/train.py OUT --minutes 6                                   # on one GPU
    python examples/studies/quality/train.py OUT --minutes 1 --device cpu --tiny --text FOLDER # tries it anywhere

OUT receives `small-llama` with the tokenizer and `draft`, their weights in 8 bits (tracekit opens such folders),
held_out.txt and calibration.txt (of the standard library), `unrounded` with both models in fp16 as transformers writes
them, and training.json: seed, texts, losses over time, perplexities before and after the rounding, beside that of a
5-gram model. Weights are saved every minute. The learning rate follows the time that is left, so that another GPU takes
other steps.
"""

import argparse
import copy
import json
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ngram import ngram_loss
from package_texts import Texts, package_texts
from texts import END, VOCABULARY, WINDOW, batch, loss_of, tokens, train_tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

SEED = 0
SHAPES = {"small-llama": (5, 384, 1024, 6), "draft": (2, 128, 384, 2)}
"""Layers, width, inner width, heads."""
_SHARES = {"small-llama": 0.83, "draft": 1.0}
"""Of the time that is left."""
_TINY = {"small-llama": (2, 64, 128, 2), "draft": (1, 64, 64, 1)}
_RATE, _WARM_UP, _FEWEST = 2.5e-3, 200, 20
_CHECK_S, _CHECKED = 60.0, 400 * WINDOW
_CHARACTERS = 200_000_000
_AFTERWARDS_S = 12.0


@dataclass
class Log:
    """What is known so far, written after each addition."""

    path: Path
    started: float = field(default_factory=time.monotonic)
    known: dict[str, Any] = field(default_factory=dict)

    def add(self, **values: Any) -> None:
        self.known |= values
        _write(self.path, json.dumps(self.known | {"seconds": self.seconds()}, indent=1))
        print(f"{self.seconds():6.1f} s", json.dumps(values)[:300], flush=True)

    def seconds(self) -> float:
        return round(time.monotonic() - self.started, 1)


def train_models(
    folder: Path, device: str, minutes: float, tiny: bool = False, roots: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """Train both models and return what was reached."""
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder / "training.json")
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    torch.manual_seed(SEED)
    log.add(seed=SEED, torch=torch.__version__, device=torch.cuda.get_device_name() if device == "cuda" else "cpu")
    texts = package_texts(1_000_000 if tiny else _CHARACTERS, roots)
    vocabulary = 512 if tiny else VOCABULARY
    train, held_out = _tokens(folder, texts, device, vocabulary, log)
    with ThreadPoolExecutor(1) as beside:  # its sorting lets go of the interpreter, which only launches meanwhile
        ngram = beside.submit(ngram_loss, train.cpu().long().numpy(), held_out.cpu().long().numpy(), vocabulary)
        ends = log.started + 60 * minutes - (0 if tiny else _AFTERWARDS_S)
        for name, shape in (_TINY if tiny else SHAPES).items():
            torch.manual_seed(SEED)
            model = _built(*shape, vocabulary=vocabulary).to(device)
            until = time.monotonic() + _SHARES[name] * (ends - time.monotonic())
            save = partial(_save, model, folder / "unrounded" / name)
            log.add(**{name: _trained(model, train, held_out, until, 4 if tiny else 128, save)})
        log.add(ngram=_perplexities(ngram.result(), log))
    for name in SHAPES:
        unrounded = LlamaForCausalLM.from_pretrained(folder / "unrounded" / name, dtype=torch.float16).to(device)
        log.add(**{name: log.known[name] | _reached(unrounded, held_out, log)})
        log.add(**{name: log.known[name] | _in_8_bits(unrounded, folder / name, held_out, log)})
    return log.known


def _tokens(folder: Path, texts: Texts, device: str, vocabulary: int, log: Log) -> tuple[Tensor, Tensor]:
    """Return the tokens of both parts, and log their sizes."""
    _write(folder / "held_out.txt", texts.shipped)
    _write(folder / "calibration.txt", texts.calibration)
    log.add(train_files=len(texts.train), train_bytes=_bytes(texts.train), held_out_files=len(texts.held_out))
    tokenizer = train_tokenizer(texts.train, vocabulary)
    tokenizer.save_pretrained(folder / "small-llama")
    train, held_out = (tokens(tokenizer, each, device) for each in (texts.train, texts.held_out))
    per_token = _bytes(texts.held_out) / len(held_out)
    log.add(train_tokens=len(train), held_out_tokens=len(held_out), held_out_bytes_per_token=per_token)
    return train, held_out


def _bytes(texts: list[str]) -> int:
    return sum(len(each.encode()) for each in texts)


def _built(layers: int, width: int, inner: int, heads: int, vocabulary: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=True,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=END,
    )
    return LlamaForCausalLM(config)


def _trained(
    model: nn.Module, train: Tensor, held_out: Tensor, until: float, size: int, save: Callable[[], None]
) -> dict[str, Any]:
    """Train until the time is over; return the losses on the way."""
    generator = torch.Generator(train.device).manual_seed(SEED)
    optimizers, loss_fn = _optimizers(model), _compiled(model, batch(train, size, generator))
    started = checked = time.monotonic()
    step, curve, losses = 0, [], []
    while (now := time.monotonic()) < until or step < _FEWEST:
        for group in [each for optimizer in optimizers for each in optimizer.param_groups]:
            group["lr"] = _rate(step, min(1.0, (now - started) / max(until - started, 1e-9)))
        loss = loss_fn(model, batch(train, size, generator))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        if step % 20 == 0:  # the host waits, so that its clock is that of the device
            losses.append(loss.item())
        if now - checked > _CHECK_S:
            save()
            curve.append({"step": step, "loss": _recent(losses), "held_out_loss": loss_of(model, held_out[:_CHECKED])})
            print(f"{now - started:6.1f} s", curve[-1], flush=True)
            checked = now
    save()
    return {"steps": step, "tokens": step * size * WINDOW, "train_loss": _recent(losses), "curve": curve}


def _optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of layers (K. Jordan, 2024), as large as AdamW's, and AdamW for others."""
    named = list(model.named_parameters())
    matrices = [each for name, each in named if each.dim() > 1 and "embed" not in name]
    tables = [each for name, each in named if each.dim() > 1 and "embed" in name]
    others = [each for _, each in named if each.dim() == 1]
    groups = [{"params": tables, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return [
        torch.optim.Muon(matrices, lr=_RATE, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups, lr=_RATE, betas=(0.9, 0.95), fused=matrices[0].is_cuda),
    ]


def _rate(step: int, progress: float) -> float:
    """Return the learning rate: it rises over the first steps, and falls as a cosine."""
    return _RATE * min(1.0, (step + 1) / _WARM_UP) * (0.02 + 0.98 * (1 + math.cos(math.pi * progress)) / 2)


def _compiled(model: nn.Module, ids: Tensor) -> Callable[[nn.Module, Tensor], Tensor]:
    """Return the loss compiled on a GPU, or as it is where there is no compiler."""
    if not ids.is_cuda:
        return _loss
    compiled: Any = torch.compile(_loss)
    try:
        compiled(model, ids).backward()
    except Exception as error:  # eager training reaches less, but something
        print(f"not compiled: {type(error).__name__}: {error}"[:500], flush=True)
        compiled = _loss
    model.zero_grad()
    return compiled


def _recent(losses: list[float]) -> float:
    recent = losses[-50:]
    return sum(recent) / max(len(recent), 1)


def _loss(model: nn.Module, ids: Tensor) -> Tensor:
    with torch.autocast(ids.device.type, torch.bfloat16):
        logits = model(input_ids=ids, use_cache=False).logits
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def _save(model: Any, folder: Path) -> None:
    """Write the weights in fp16; another process always finds whole files."""
    config, weights = model.config, {name: value.detach().half().cpu() for name, value in model.state_dict().items()}
    copied = LlamaForCausalLM(config).half()
    copied.load_state_dict(weights)
    made = folder.with_name(f".{folder.name}")
    copied.save_pretrained(made)
    folder.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        path.replace(folder / path.name)
    made.rmdir()


def _reached(model: LlamaForCausalLM, held_out: Tensor, log: Log) -> dict[str, Any]:
    """Return the size of a model, and what it reaches in fp32."""
    parameters = sum(each.numel() for each in model.parameters())
    return {"parameters": parameters, **_perplexities(loss_of(copy.deepcopy(model).float(), held_out), log)}


def _in_8_bits(model: LlamaForCausalLM, folder: Path, held_out: Tensor, log: Log) -> dict[str, Any]:
    """Write a model in 8 bits, and return the size of the file and what it reaches, opened again in fp32."""
    from tracekit.capture import models
    from tracekit.quantization import quantize, save

    path = folder / "int8.safetensors"
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    save(quantize(model, "int8"), path, embeddings=True)
    opened = models.build(models.find(str(folder)), weights="pretrained", device=held_out.device.type)
    return {"file_bytes": path.stat().st_size, "in_8_bits": _perplexities(loss_of(opened, held_out), log)}


def _perplexities(loss: float, log: Log) -> dict[str, float]:
    """Return the perplexities of a mean loss per token, in nats."""
    of_byte = loss / log.known["held_out_bytes_per_token"]
    return {
        "perplexity": math.exp(loss),
        "perplexity_per_byte": math.exp(of_byte),
        "bits_per_byte": of_byte / math.log(2),
    }


def _write(path: Path, text: str) -> None:
    made = path.with_name(f".{path.name}")
    made.write_text(text, encoding="utf-8")
    made.replace(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--text", type=Path, action="append", default=[], help="read these folders, not the packages")
    args = parser.parse_args()
    train_models(args.models, args.device, args.minutes, args.tiny, tuple(args.text))
