"""An MLP-mixer learns from its own moving average; hooks log the norm of every gradient, and the loss is printed.

Each `.item()` waits for the GPU, 149 times per step. In the fixed variant, norms and losses stay on the GPU for fifty
steps.
"""

from collections.abc import Iterator
from copy import deepcopy
from io import StringIO

import torch
from torch import nn

KEPT = 50


class MixerBlock(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.across, self.within = mlp(patches, 2 * patches), mlp(width, 4 * width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden + self.across(self.norms[0](hidden).transpose(1, 2)).transpose(1, 2)
        return hidden + self.within(self.norms[1](hidden))


def mlp(width: int, inner: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class Mixer(nn.Module):
    def __init__(self, side: int, width: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.blocks = nn.Sequential(*(MixerBlock((side // 8) ** 2, width) for _ in range(depth)))
        self.head = nn.Linear(width, 256)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.patches(pictures).flatten(2).transpose(1, 2)).mean(1))


class Monitor:
    """Writes a line a step with the loss and the largest norm of a gradient."""

    def __init__(self, model: nn.Module) -> None:
        self.norms: dict[str, float] = {}
        self.log = StringIO()
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda weight, name=name: self.keep(name, weight.grad))

    def keep(self, name: str, gradient: torch.Tensor) -> None:
        self.norms[name] = gradient.norm().item()

    def end_step(self, loss: torch.Tensor) -> None:
        print(f"loss {loss.item():.4f}, gradients up to {max(self.norms.values()):.3f}", file=self.log)


class PatientMonitor(Monitor):
    def __init__(self, model: nn.Module) -> None:
        self.waiting: list[torch.Tensor] = []
        self.losses: list[torch.Tensor] = []
        super().__init__(model)

    def keep(self, name: str, gradient: torch.Tensor) -> None:
        self.waiting.append(gradient.norm())

    def end_step(self, loss: torch.Tensor) -> None:
        self.losses.append(loss.detach())
        if len(self.losses) == KEPT:
            norms = torch.stack(self.waiting).view(KEPT, -1).amax(1).tolist()
            for value, norm in zip(torch.stack(self.losses).tolist(), norms, strict=True):
                print(f"loss {value:.4f}, gradients up to {norm:.3f}", file=self.log)
            self.waiting.clear()
            self.losses.clear()


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, side, width, depth = (2, 32, 16, 2) if tiny else (32, 128, 512, 12)
    student = Mixer(side, width, depth).to(device)
    teacher = deepcopy(student).requires_grad_(False).eval()
    monitor = (PatientMonitor if fixed else Monitor)(student)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, fused=True)
    learned, followed = list(student.parameters()), list(teacher.parameters())
    pictures = torch.rand(batch, 3, side, side, device=device)
    while True:
        with torch.autocast(device, torch.bfloat16):
            with torch.no_grad():
                wanted = teacher(pictures.flip(-1)).float().softmax(-1)
            loss = nn.functional.cross_entropy(student(pictures + 0.1 * torch.randn_like(pictures)).float(), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(followed, learned, 0.01)
        monitor.end_step(loss)
        yield batch
