"""Runs of models that tracekit does not bundle, in three sets: the model, its inputs, and whether it trains."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import third
import torch
from denoiser import Denoiser
from encoder import Encoder
from experts import MixtureDecoder
from graph import GraphNetwork
from grouped_decoder import GroupedDecoder
from recurrence import RecurrentDecoder, next_token_loss
from sound import SoundNetwork
from torch import Tensor, nn
from unet import UNet
from vision import VisionNetwork

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from gpt2_from_scratch import GPT2

Build = Callable[[], tuple[nn.Module, Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]]]
SETS = ("first", "second", "third")


@dataclass(frozen=True)
class Subject:
    build: Build
    train: bool = False
    loss: Callable[[Tensor], Tensor] | None = None


def subjects(which: str, tiny: bool = False) -> dict[str, Subject]:
    """Return the runs of a set by name; `tiny`: of few and narrow layers, for a CPU."""
    return {"first": _first, "second": _second, "third": _third}[which](tiny)


def _first(tiny: bool) -> dict[str, Subject]:
    return {
        "gpt2-train-fp32": Subject(lambda: _gpt2(tiny), train=True, loss=next_token_loss),
        "gpt2-forward-fp32": Subject(lambda: _gpt2(tiny)),
        "unet-train-fp32": Subject(lambda: _unet(tiny), train=True),
        "encoder-forward-fp16": Subject(lambda: _encoder(tiny)),
        "experts-train-bf16": Subject(lambda: _experts(tiny), train=True, loss=next_token_loss),
        "recurrence-train-fp32": Subject(lambda: _recurrence(tiny), train=True, loss=next_token_loss),
    }


def _second(tiny: bool) -> dict[str, Subject]:
    return {
        "grouped-decoder-train-bf16": Subject(lambda: _grouped_decoder(tiny), train=True, loss=next_token_loss),
        "graph-train-fp32": Subject(lambda: _graph(tiny), train=True),
        "denoiser-forward-fp16": Subject(lambda: _denoiser(tiny)),
        "sound-train-fp32": Subject(lambda: _sound(tiny), train=True, loss=next_token_loss),
        "vision-train-amp": Subject(lambda: _vision(tiny), train=True),
    }


def _third(tiny: bool) -> dict[str, Subject]:
    return {
        "olmo2-train-bf16": Subject(lambda: third.decoder(tiny), train=True),
        "electra-train-fp32": Subject(lambda: third.encoder(tiny), train=True),
        "bart-train-bf16": Subject(lambda: third.translator(tiny), train=True),
        "efficientnet-train-fp32": Subject(lambda: third.images(tiny), train=True),
        "segformer-forward-fp32": Subject(lambda: third.segments(tiny)),
        "hubert-forward-fp16": Subject(lambda: third.speech(tiny)),
        "scratch-gpt-train-amp": Subject(lambda: third.script(tiny), train=True, loss=next_token_loss),
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


def _grouped_decoder(tiny: bool) -> tuple[nn.Module, Tensor]:
    layers, width, length, vocabulary = (2, 64, 64, 500) if tiny else (12, 1024, 1024, 32000)
    model = GroupedDecoder(layers, width, width // 64 * 2 if tiny else 16, 2 if tiny else 4, length, vocabulary)
    return model.bfloat16(), torch.randint(vocabulary, (1 if tiny else 4, length))


def _graph(tiny: bool) -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    nodes, edges, width = (100, 400, 32) if tiny else (100_000, 800_000, 256)
    return GraphNetwork(4, 64, width, 40), (torch.randn(nodes, 64), torch.randint(nodes, (2, edges)))


def _denoiser(tiny: bool) -> tuple[nn.Module, tuple[Tensor, ...]]:
    width, size, batch = (64, 8, 1) if tiny else (320, 64, 8)
    inputs = torch.randn(batch, 4, size, size), torch.randn(batch, 256), torch.randn(batch, 77, 768)
    return Denoiser(width, 768).half(), tuple(each.half() for each in inputs)


def _sound(tiny: bool) -> tuple[nn.Module, Tensor]:
    width, layers, length = (16, 4, 256) if tiny else (128, 10, 16_000)
    return SoundNetwork(width, layers, 256), torch.randint(256, (1 if tiny else 4, length))


def _vision(tiny: bool) -> tuple[nn.Module, Tensor]:
    width, size, batch = (8, 32, 2) if tiny else (48, 224, 64)
    return VisionNetwork(width, 2, 1000), torch.randn(batch, 3, size, size)
