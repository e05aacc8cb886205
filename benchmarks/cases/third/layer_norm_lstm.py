"""A speech recogniser with layer-normalised LSTM cells, which cuDNN lacks: Python launches each gate of each frame.

In the fixed variant, the pass over all frames is one CUDA graph.
"""

from collections.abc import Iterator

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, came: int, width: int) -> None:
        super().__init__()
        self.read, self.recall = nn.Linear(came, 4 * width, bias=False), nn.Linear(width, 4 * width, bias=False)
        self.read_norm, self.recall_norm = nn.LayerNorm(4 * width), nn.LayerNorm(4 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, frame: torch.Tensor, said: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gates = self.read_norm(self.read(frame)) + self.recall_norm(self.recall(said))
        enter, forget, leave, new = gates.chunk(4, -1)
        kept = self.norm(forget.sigmoid() * kept + enter.sigmoid() * new.tanh())
        return leave.sigmoid() * kept.tanh(), kept


class Recogniser(nn.Module):
    def __init__(self, bands: int, width: int, depth: int, letters: int) -> None:
        super().__init__()
        self.cells = nn.ModuleList(Cell(bands if layer == 0 else width, width) for layer in range(depth))
        self.head = nn.Linear(width, letters)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        states = [(frames.new_zeros(len(frames), cell.norm.normalized_shape[0]),) * 2 for cell in self.cells]
        said = []
        for hidden in frames.unbind(1):
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(hidden, *states[layer])
                hidden = states[layer][0]
            said.append(hidden)
        return self.head(torch.stack(said, 1)).log_softmax(-1)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    clips, count, width, depth = (2, 5, 16, 2) if tiny else (64, 60, 768, 3)
    model = Recogniser(80, width, depth, 64).to(device, torch.bfloat16).eval()
    clip = torch.randn(clips, count, 80, device=device, dtype=torch.bfloat16)
    letters = torch.zeros(clips, count, device=device, dtype=torch.long)

    def step() -> None:
        letters.copy_(model(clip).argmax(-1))

    if fixed and device != "cpu":
        step = graphed(step)
    while True:
        clip.normal_()
        step()
        yield clips


def graphed(step):
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step()
        step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
