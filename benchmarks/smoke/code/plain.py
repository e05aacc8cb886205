"""A script as users have it, which does not know tracekit: python plain.py DEVICE"""

import sys

import torch
from torch import nn

device = sys.argv[1]
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512), nn.LayerNorm(512)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    x = torch.randn(64, 512).to(device)
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"loss {loss.item():.3f}")
