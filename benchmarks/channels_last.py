"""Networks for images with their channels last: the speed-up that `tracekit.verify` predicts, beside what it measures.

    python benchmarks/channels_last.py OUT [--device cpu --tiny]      # on a GPU: about 40 s

Inference of six networks with random weights. OUT/channels_last.json has a row for each.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers
from torch import nn

import tracekit

sys.path.insert(0, str(Path(__file__).parent / "layer_shares"))
from unet import UNet

_KEPT = ("predicted", "measured", "before", "after", "difference", "error", "caveats")
Built = tuple[nn.Module, dict[str, torch.Tensor]]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", type=Path)
    asked.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked.add_argument("--tiny", action="store_true")
    asked.add_argument("--seconds", type=float, default=60, help="no network is begun after them")
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    until, rows = time.monotonic() + options.seconds, dict[str, Any]()
    for name, build in networks(options.tiny).items():
        if time.monotonic() < until:
            model, inputs = build(options.device)
            rows[name] = _row(model, inputs)
            print(f"{until - time.monotonic():4.0f} s left  {name}: {rows[name]}", flush=True)
            (options.out / "channels_last.json").write_text(json.dumps(rows, indent=1) + "\n")


def networks(tiny: bool) -> dict[str, Callable[[str], Built]]:
    """Return what builds each network and its images on a device."""
    batch, side = (1, 64) if tiny else (32, 224)

    def of(kind: str, dtype: torch.dtype, **settings: Any) -> Callable[[str], Built]:
        made, config = (getattr(transformers, f"{kind}{suffix}") for suffix in ("ForImageClassification", "Config"))

        def built(device: str) -> Built:
            with torch.device(device):
                images = torch.randn(batch, 3, side, side, dtype=dtype)
                return made(config(**settings)).to(dtype).eval(), {"pixel_values": images}

        return built

    def unet(device: str) -> Built:
        with torch.device(device):
            images = torch.randn(batch // 4 or 1, 3, side, side, dtype=torch.float16)
            return UNet(8 if tiny else 64, 4).half().eval(), {"images": images}

    return {
        "resnet-50, bf16": of("ResNet", torch.bfloat16),
        "resnet-50, fp32": of("ResNet", torch.float32),
        "regnet-y-040, fp16": of("RegNet", torch.float16, depths=[2, 6, 12, 2], hidden_sizes=[128, 192, 512, 1088]),
        "convnext-tiny, bf16": of("ConvNext", torch.bfloat16),
        "efficientnet-b0, fp16": of("EfficientNet", torch.float16, image_size=side, width_coefficient=1.0),
        "unet, fp16": unet,
    }


def _row(model: nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    with torch.inference_mode():
        (result,) = tracekit.verify(model, inputs, "channels-last").results
    return {name: msgspec.to_builtins(getattr(result, name)) for name in _KEPT}


if __name__ == "__main__":
    main()
