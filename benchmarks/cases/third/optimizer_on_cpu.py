"""A language model is trained with its optimizer on the CPU; gradients and weights cross in pageable memory.

In the fixed variant, both sides use pinned buffers, and the copies do not wait for one another.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](hidden)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.out(seen.transpose(1, 2).flatten(2))
        return hidden + self.mlp(self.norms[1](hidden))


class Offloaded:
    """AdamW whose weights and state are on the CPU."""

    def __init__(self, model: nn.Module, pinned: bool) -> None:
        self.parameters, self.pinned = list(model.parameters()), pinned
        self.masters = [self.place(parameter.detach()) for parameter in self.parameters]
        self.gradients = [self.place(parameter.detach()) for parameter in self.parameters]
        self.adam = torch.optim.AdamW(self.masters, lr=1e-4, fused=True)

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        here = tensor.cpu().clone()
        return here.pin_memory() if self.pinned else here

    def step(self) -> None:
        for parameter, master, gradient in zip(self.parameters, self.masters, self.gradients, strict=True):
            if self.pinned:
                master.grad = gradient.copy_(parameter.grad, non_blocking=True)
            else:
                master.grad = parameter.grad.cpu()
        if self.pinned:
            torch.cuda.current_stream().synchronize()
        self.adam.step()
        with torch.no_grad():
            for parameter, master in zip(self.parameters, self.masters, strict=True):
                parameter.copy_(master, non_blocking=self.pinned)
                parameter.grad = None


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    width, heads, depth, vocabulary = (32, 2, 2, 512) if tiny else (1024, 16, 10, 32_000)
    batch, length = (2, 16) if tiny else (8, 512)
    body = nn.Sequential(nn.Embedding(vocabulary, width), *(Layer(width, heads) for _ in range(depth)))
    model = nn.Sequential(body, nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)).to(device)
    optimizer = Offloaded(model, fixed and device != "cpu")
    while True:
        text = torch.randint(vocabulary, (batch, length + 1), device=device)
        with torch.autocast(device, torch.bfloat16):
            logits = model(text[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        yield batch * length
