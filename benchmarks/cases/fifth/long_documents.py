"""A Qwen2-like model is trained on long documents; what its backward pass needs takes more than a T4 or an L4 has.

In the fixed variant, its layers are checkpointed, by one line.
"""

from collections.abc import Iterator

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def model(tiny: bool) -> Qwen2ForCausalLM:
    heads = (
        {"num_attention_heads": 2, "num_key_value_heads": 1}
        if tiny
        else {"num_attention_heads": 14, "num_key_value_heads": 2}
    )
    size = (
        {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 128}
        if tiny
        else {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "vocab_size": 16_384}
    )
    return Qwen2ForCausalLM(Qwen2Config(**size, **heads, tie_word_embeddings=True, use_cache=False))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, length = (1, 16) if tiny else (4, 4096)
    learner = model(tiny).to(device).train()
    if fixed:
        learner.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(learner.parameters(), lr=1e-4, fused=True)
    documents = torch.randint(100, (batch, length), device=device)
    while True:
        with torch.autocast(device, torch.bfloat16):
            loss = learner(input_ids=documents, labels=documents).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield documents.numel()
