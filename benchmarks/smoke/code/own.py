"""Each function is one use of the Python API with a module of one's own: python own.py FUNCTION DEVICE FOLDER"""

import copy
import json
import sys
from pathlib import Path

import torch
from torch import nn

import tracekit

WIDTH = 512


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.gate, self.up = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def built(device: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(4))).to(device), torch.randn(4, 128, WIDTH, device=device)


def profile(device: str, folder: str) -> None:
    model, x = built(device)
    tracekit.profile(model.bfloat16(), x.bfloat16(), device=device, output=folder, force=True)


def train(device: str, folder: str) -> None:
    model, x = built(device)
    tracekit.profile(model, x, device=device, train=True, output=folder, force=True)


def capture(device: str, folder: str) -> None:
    model, x = built(device)
    with tracekit.capture(folder) as recording:
        for _ in range(3):
            with recording.step():
                model(x).sum().backward()


def verify(device: str, _: str) -> None:
    model, x = built(device)
    result = tracekit.verify(model, {"input": x}, ["half-precision", *(["cuda-graphs"] if device == "cuda" else [])])
    print(
        json.dumps([{"id": r.id, "error": r.error, "gain": r.measured and r.measured.expected} for r in result.results])
    )


def quantize(device: str, _: str) -> None:
    model, x = built(device)
    model, x = model.bfloat16().eval(), x.bfloat16()
    with torch.inference_mode():
        right = model(x).float()
        for bits in ("int8", "int4"):
            made = tracekit.quantize(copy.deepcopy(model), bits)(x).float()
            print(json.dumps({bits: ((made - right).norm() / right.norm()).item()}))


def snapshot(device: str, folder: str) -> None:
    torch.cuda.memory._record_memory_history()
    model, x = built(device)
    model(x).sum().backward()
    Path(folder).mkdir(parents=True, exist_ok=True)
    torch.cuda.memory._dump_snapshot(f"{folder}/snapshot.pickle")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
