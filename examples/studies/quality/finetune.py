"""Fine-tune the trained model on a second text: all its weights, and adapters beside weights in NF4 (QLoRA)."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from texts import batch, perplexity, second_text, tokens
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from tracekit.apply import Subject, with_adapters
from tracekit.run import Settings


def finetuned(model: Path, device: str, tiny: bool, adapters: Path) -> list[dict[str, Any]]:
    """Return a row for the model as it is, fine-tuned whole, and with adapters, which are written to a file."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    train, held_out = (tokens(tokenizer, [each], device) for each in second_text())
    first = tokens(tokenizer, [(model.parent / "held_out.txt").read_text()], device)

    def load(dtype: torch.dtype = torch.float32) -> nn.Module:
        return AutoModelForCausalLM.from_pretrained(model, dtype=dtype).to(device)

    def qlora() -> nn.Module:
        settings = Settings(model=str(model), workload="train", dtype="bf16", device=device)
        return with_adapters(Subject(model=load(torch.bfloat16), settings=settings)).model

    untrained = load(torch.bfloat16)
    rows = [_row("before", untrained, held_out, first)]
    del untrained
    for name, make, rate in (("whole", load, 1e-4), ("qlora", qlora, 1e-3)):
        try:
            trained, cost = _trained(make, train, rate, steps=3 if tiny else 120, size=2 if tiny else 16)
        except Exception as error:  # the packages that it needs, or the device, may be missing
            rows.append({"run": name, "error": f"{type(error).__name__}: {error}"[:300]})
            continue
        rows.append(_row(name, trained, held_out, first) | cost)
        if name == "qlora":
            save_file({key: value.cpu() for key, value in trained.state_dict().items() if "lora_" in key}, adapters)
        del trained
    return rows


def _row(name: str, model: nn.Module, held_out: Tensor, first: Tensor) -> dict[str, Any]:
    return {
        "run": name,
        "perplexity": perplexity(model, held_out),
        "perplexity_of_first_text": perplexity(model, first),
    }


def _trained(
    make: Callable[[], nn.Module], train: Tensor, rate: float, steps: int, size: int
) -> tuple[nn.Module, dict[str, Any]]:
    cuda, generator = train.is_cuda, torch.Generator(train.device).manual_seed(1)
    before = _allocated(cuda)
    model = make().train()
    weights = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    times = []
    for _ in range(steps):
        ids = batch(train, size, generator)
        started = time.perf_counter()
        with torch.autocast(ids.device.type, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated() - before if cuda else None
    trained = sum(each.numel() for each in weights)
    return model, {
        "step_ms": 1e3 * sorted(times)[len(times) // 2],
        "tokens_per_s": size * 512 / sorted(times)[len(times) // 2],
        "peak_bytes": peak,
        "trained_parameters": trained,
        "steps": steps,
    }


def _allocated(cuda: bool) -> int:
    if not cuda:
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()
