"""A Llama is fine-tuned after a padding token was added to its vocabulary of 32,000: 32,001 columns of logits."""

from collections.abc import Iterator

import torch
from transformers import LlamaConfig, LlamaForCausalLM

MICRO_BATCHES = 2


def model_with_padding_token(tiny: bool, multiple: int | None) -> LlamaForCausalLM:
    width, layers, heads, inner, words = (32, 2, 2, 64, 512) if tiny else (1024, 10, 16, 2816, 32_000)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=words,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=inner,
            use_cache=False,
        )
    )
    model.resize_token_embeddings(words + 1, pad_to_multiple_of=multiple, mean_resizing=False)
    return model


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, length = (2, 16) if tiny else (8, 512)
    model = model_with_padding_token(tiny, 64 if fixed else None).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    answers = torch.randint(500, (MICRO_BATCHES, batch, length), device=device)
    while True:
        for text in answers:
            with torch.autocast(device, torch.bfloat16):
                loss = model(input_ids=text, labels=text).loss / MICRO_BATCHES
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield answers.numel()
