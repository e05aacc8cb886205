"""A radiance field (NeRF) is fitted to photographs, in float32 with TF32 off as PyTorch has it; in the fixed variant,
under autocast.

It is written as a module for a trainer, with `training_step` and `configure_optimizers`.
"""

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional


def waves(places: torch.Tensor, octaves: int) -> torch.Tensor:
    scaled = places[..., None] * (2.0 ** torch.arange(octaves, device=places.device))
    return torch.cat([scaled.sin(), scaled.cos()], -1).flatten(-2)


class RadianceField(nn.Module):
    def __init__(self, width: int, samples: int, octaves: int = 8, views: int = 4) -> None:
        super().__init__()
        self.samples, self.octaves, self.views = samples, octaves, views
        entered, turned = 6 * octaves, 6 * views
        self.near = nn.ModuleList([nn.Linear(entered, width), *(nn.Linear(width, width) for _ in range(4))])
        self.far = nn.ModuleList([nn.Linear(width + entered, width), *(nn.Linear(width, width) for _ in range(2))])
        self.density, self.feature = nn.Linear(width, 1), nn.Linear(width, width)
        self.view, self.colour = nn.Linear(width + turned, width // 2), nn.Linear(width // 2, 3)

    def forward(self, origins: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        depths = torch.linspace(2, 6, self.samples, device=origins.device)
        depths = depths + torch.rand(len(origins), self.samples, device=origins.device) * 4 / self.samples
        places = origins[:, None] + depths[..., None] * directions[:, None]
        turned = waves(directions, self.views)[:, None].expand(-1, self.samples, -1)
        return self.rendered(*self.seen(waves(places, self.octaves), turned), depths)

    def seen(self, entered: torch.Tensor, turned: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = entered
        for layer in self.near:
            hidden = functional.relu(layer(hidden))
        hidden = torch.cat([hidden, entered.to(hidden.dtype)], -1)
        for layer in self.far:
            hidden = functional.relu(layer(hidden))
        view = torch.cat([self.feature(hidden), turned.to(hidden.dtype)], -1)
        colours = self.colour(functional.relu(self.view(view)))
        return self.density(hidden).float().squeeze(-1), colours.float().sigmoid()

    def rendered(self, density: torch.Tensor, colours: torch.Tensor, depths: torch.Tensor) -> torch.Tensor:
        steps = functional.pad(depths.diff(dim=1), (0, 1), value=1e3)
        held = functional.relu(density) * steps
        before = functional.pad(held.cumsum(1)[:, :-1], (1, 0))
        weights = (1 - torch.exp(-held)) * torch.exp(-before)
        return (weights[..., None] * colours).sum(1)

    def training_step(self, rays: dict[str, torch.Tensor]) -> torch.Tensor:
        return functional.mse_loss(self(rays["origins"], rays["directions"]), rays["colours"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=5e-4, fused=True)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    rays, samples, width = (16, 4, 32) if tiny else (4096, 64, 256)
    field = RadianceField(width, samples).to(device)
    optimizer = field.configure_optimizers()
    known = {name: torch.rand(50 * rays, 3, device=device) for name in ("origins", "directions", "colours")}
    while True:
        chosen = torch.randint(50 * rays, (rays,), device=device)
        batch = {name: values[chosen] for name, values in known.items()}
        with torch.autocast(device, torch.bfloat16, enabled=fixed):
            loss = field.training_step(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield rays
