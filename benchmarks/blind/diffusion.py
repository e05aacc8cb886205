"""A diffusion transformer (DiT, Peebles and Xie 2023) in plain torch: latents of 32 x 32 x 4, adaptive layer norms."""

import math
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional

SIDE, CHANNELS = 32, 4


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition)[:, None].chunk(6, dim=-1)
        q, k, v = self.qkv(self.norm1(x) * (1 + scale1) + shift1).unflatten(-1, (3, self.heads, -1)).unbind(2)
        attended = functional.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)))
        x = x + gate1 * self.out(attended.transpose(1, 2).flatten(2))
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self, hidden_size: int, num_hidden_layers: int, num_attention_heads: int, patch_size: int) -> None:
        super().__init__()
        self.patch, self.width = patch_size, hidden_size
        tokens = (SIDE // patch_size) ** 2
        self.embed = nn.Conv2d(CHANNELS, hidden_size, patch_size, stride=patch_size)
        self.positions = nn.Parameter(torch.randn(1, tokens, hidden_size) * 0.02)
        self.labels = nn.Embedding(1001, hidden_size)
        self.time = nn.Sequential(nn.Linear(256, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size))
        self.blocks = nn.ModuleList(Block(hidden_size, num_attention_heads) for _ in range(num_hidden_layers))
        self.norm = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=1e-6)
        self.head = nn.Linear(hidden_size, patch_size**2 * CHANNELS)

    def forward(self, latents: Tensor, times: Tensor, classes: Tensor, noise: Tensor | None = None) -> SimpleNamespace:
        half = torch.arange(128, device=latents.device) * (-math.log(10_000) / 128)
        angles = times[:, None].float() * half.exp()
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1).to(latents.dtype)
        x = self.embed(latents).flatten(2).transpose(1, 2) + self.positions
        condition = self.time(waves) + self.labels(classes)
        for block in self.blocks:
            x = block(x, condition)
        side = SIDE // self.patch
        pixels = self.head(self.norm(x)).unflatten(1, (side, side)).unflatten(-1, (self.patch, self.patch, CHANNELS))
        logits = pixels.permute(0, 5, 1, 3, 2, 4).reshape(latents.shape)
        return SimpleNamespace(logits=logits, loss=None if noise is None else functional.mse_loss(logits, noise))
