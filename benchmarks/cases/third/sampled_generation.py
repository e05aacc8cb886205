"""Sixteen chats are continued by one CUDA graph a token, but the sampled tokens go through Python.

Each is read by `int()`, tested for the end of the text, and a new tensor is made of them for the next token. In the
fixed variant, the tokens stay on the GPU and are read once in 32 steps.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, StaticCache

END, TOP, KEPT = 2, 50, 32


def chat_model(tiny: bool) -> Qwen2ForCausalLM:
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    large = {"hidden_size": 896, "num_hidden_layers": 12, "num_attention_heads": 14, "intermediate_size": 4864}
    heads = {"num_key_value_heads": 2, "vocab_size": 512 if tiny else 151_936}
    return Qwen2ForCausalLM(Qwen2Config(**(small if tiny else large), **heads))


def replayed(step: Callable[[], Any], device: str) -> Callable[[], Any]:
    if device == "cpu":
        return step
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def sampled(logits: torch.Tensor) -> torch.Tensor:
    best, ids = logits.float().topk(TOP)
    return ids.gather(-1, torch.multinomial((best / 0.7).softmax(-1), 1))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    users, longest = (2, 256) if tiny else (16, 1024)
    model = chat_model(tiny).to(device, torch.bfloat16).eval()
    cache = StaticCache(config=model.config, max_cache_len=longest)
    prompt = torch.randint(512, (users, 64), device=device)
    token = sampled(model(prompt, past_key_values=cache).logits[:, -1])
    logits = torch.zeros(users, model.config.vocab_size, device=device, dtype=torch.bfloat16)
    step = replayed(lambda: logits.copy_(model(token, past_key_values=cache).logits[:, -1]), device)
    texts: list[list[int]] = [[] for _ in range(users)]
    ended = [False] * users
    waiting: list[torch.Tensor] = []
    for _ in range(longest - 100):
        step()
        picked = sampled(logits)
        if fixed:
            token.copy_(picked)
            waiting.append(picked)
            if len(waiting) == KEPT:
                for text, more in zip(texts, torch.cat(waiting, 1).tolist(), strict=True):
                    text.extend(more)
                waiting.clear()
        else:
            for user in range(users):
                texts[user].append(int(picked[user, 0]))
                ended[user] = ended[user] or bool(picked[user, 0] == END)
            token.copy_(torch.tensor([[text[-1]] for text in texts], device=device))
        yield users
