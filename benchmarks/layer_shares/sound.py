"""A network of dilated convolutions over sound (WaveNet, van den Oord et al., 2016)."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part


class Layer(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.dilated = nn.Conv1d(width, 2 * width, 2, dilation=dilation)
        self.residual, self.skip = nn.Conv1d(width, width, 1), nn.Conv1d(width, 2 * width, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.dilated(functional.pad(x, (self.dilation, 0)))
        with part("gate"):
            values, gate = hidden.chunk(2, dim=1)
            hidden = torch.tanh(values) * torch.sigmoid(gate)
        return x + self.residual(hidden), self.skip(hidden)


class SoundNetwork(nn.Module):
    def __init__(self, width: int, layers: int, levels: int) -> None:
        super().__init__()
        self.levels, self.enter = nn.Embedding(levels, width), nn.Conv1d(width, width, 1)
        self.layers = nn.ModuleList(Layer(width, 2**number) for number in range(layers))
        self.leave = nn.Sequential(
            nn.ReLU(), nn.Conv1d(2 * width, 2 * width, 1), nn.ReLU(), nn.Conv1d(2 * width, levels, 1)
        )

    def forward(self, samples: Tensor) -> Tensor:
        x = self.enter(self.levels(samples).transpose(1, 2))
        total: Tensor | float = 0.0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.leave(total).transpose(1, 2)
