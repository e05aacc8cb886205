"""Six runs of five models that tracekit does not bundle: the model, its inputs, and whether it trains."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from encoder import Encoder
from experts import MixtureDecoder
from recurrence import RecurrentDecoder, next_token_loss
from torch import Tensor, nn
from unet import UNet

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from gpt2_from_scratch import GPT2

Build = Callable[[], tuple[nn.Module, Tensor]]


@dataclass(frozen=True)
class Subject:
    build: Build
    train: bool = False
    loss: Callable[[Tensor], Tensor] | None = None


def subjects(tiny: bool = False) -> dict[str, Subject]:
    """Return the runs by name; `tiny`: of few and narrow layers, for a CPU."""
    return {
        "gpt2-train-fp32": Subject(lambda: _gpt2(tiny), train=True, loss=next_token_loss),
        "gpt2-forward-fp32": Subject(lambda: _gpt2(tiny)),
        "unet-train-fp32": Subject(lambda: _unet(tiny), train=True),
        "encoder-forward-fp16": Subject(lambda: _encoder(tiny)),
        "experts-train-bf16": Subject(lambda: _experts(tiny), train=True, loss=next_token_loss),
        "recurrence-train-fp32": Subject(lambda: _recurrence(tiny), train=True, loss=next_token_loss),
    }


def _gpt2(tiny: bool) -> tuple[nn.Module, Tensor]:
    layers, width, vocabulary = (2, 64, 500) if tiny else (12, 768, 50257)
    return GPT2(layers, width, width // 64, 512, vocabulary), torch.randint(vocabulary, (1 if tiny else 8, 512))


def _unet(tiny: bool) -> tuple[nn.Module, Tensor]:
    return UNet(8 if tiny else 64, 4), torch.randn(1 if tiny else 8, 3, 64 if tiny else 256, 64 if tiny else 256)


def _encoder(tiny: bool) -> tuple[nn.Module, Tensor]:
    layers, width, batch = (2, 64, 1) if tiny else (12, 768, 32)
    return Encoder(layers, width, width // 64, 256, 30522).half(), torch.randint(1, 30522, (batch, 256))


def _experts(tiny: bool) -> tuple[nn.Module, Tensor]:
    layers, width, vocabulary = (2, 64, 500) if tiny else (8, 768, 32000)
    model = MixtureDecoder(layers, width, width // 64, 8, vocabulary).bfloat16()
    return model, torch.randint(vocabulary, (1 if tiny else 8, 64 if tiny else 1024))


def _recurrence(tiny: bool) -> tuple[nn.Module, Tensor]:
    layers, width, vocabulary = (2, 64, 500) if tiny else (6, 512, 16000)
    model = RecurrentDecoder(layers, width, vocabulary)
    return model, torch.randint(vocabulary, (1 if tiny else 8, 64 if tiny else 1024))
