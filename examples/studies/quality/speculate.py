"""Decode the trained model with its draft: how often the draft agrees, and what it gives."""

import time
from pathlib import Path
from typing import Any

import torch
from texts import tokens
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPT, NEW, CHECKED = 64, 128, 4


def speculated(models: Path, device: str, tiny: bool) -> dict[str, Any]:
    """Return tokens per second without and with the draft, and the share of tokens that it foresees."""
    target, draft = (
        AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.bfloat16).to(device).eval()
        for name in ("small-llama", "draft")
    )
    ids = tokens(AutoTokenizer.from_pretrained(models / "small-llama"), [(models / "held_out.txt").read_text()], device)
    prompts = ids[: (2 if tiny else 9) * 10 * PROMPT].view(-1, 10 * PROMPT)[:, :PROMPT]
    draft.generation_config.num_assistant_tokens = CHECKED
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    new = 8 if tiny else NEW
    plain, plain_s = _generated(target, prompts, new)
    _, assisted_s = _generated(target, prompts, new, assistant_model=draft)
    agreed = [_agreement(draft, each) for each in plain]
    made = new * (len(prompts) - 1)
    return {
        "drafted_tokens": CHECKED,
        "agreement": sum(agreed) / len(agreed),
        "tokens_per_s": made / plain_s,
        "tokens_per_s_with_draft": made / assisted_s,
        "speedup": plain_s / assisted_s,
    }


@torch.inference_mode()
def _generated(target: Any, prompts: Tensor, new: int, **options: Any) -> tuple[list[Tensor], float]:
    """Return what follows each prompt, and the seconds for all but the first, which warms up."""
    made, seconds = [], 0.0
    for index, prompt in enumerate(prompts):
        started = time.perf_counter()
        mask = torch.ones_like(prompt)[None]
        whole = target.generate(
            prompt[None], attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, **options
        )
        if whole.is_cuda:
            torch.cuda.synchronize()
        seconds += (time.perf_counter() - started) * (index > 0)
        made.append(whole[0])
    return made, seconds


@torch.inference_mode()
def _agreement(draft: Any, whole: Tensor) -> float:
    """Return the share of generated tokens that the draft finds most likely after the tokens before them."""
    choices = draft(input_ids=whole[None]).logits[0, PROMPT - 1 : -1].argmax(-1)
    return (choices == whole[PROMPT:]).float().mean().item()
