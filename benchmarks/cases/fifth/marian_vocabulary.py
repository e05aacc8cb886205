"""A Marian translation model with its own vocabulary, 58,101 pieces, is trained in bfloat16.

In the fixed variant, the vocabulary is padded to 58,112, a multiple of 64.
"""

from collections.abc import Iterator

import torch
from transformers import MarianConfig, MarianMTModel


def config(tiny: bool, words: int) -> MarianConfig:
    small = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = 2 if tiny else 8
    size = small if tiny else {"d_model": 512, "encoder_layers": 3, "decoder_layers": 3}
    ends = {"pad_token_id": words - 1, "eos_token_id": 0, "decoder_start_token_id": words - 1, "forced_eos_token_id": 0}
    return MarianConfig(
        vocab_size=words, decoder_vocab_size=words, encoder_attention_heads=heads, decoder_attention_heads=heads,
        max_position_embeddings=512, **size, **ends,
    )  # fmt: skip


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    words, batch, length = (101, 2, 8) if tiny else (58_101, 32, 256)
    model = MarianMTModel(config(tiny, -(-words // 64) * 64 if fixed else words)).to(device, torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    here, there = (torch.randint(1, words - 1, (batch, length), device=device) for _ in range(2))
    while True:
        loss = model(input_ids=here, labels=there).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield there.numel()
