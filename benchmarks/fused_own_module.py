"""Fused kernels for a module of one's own on a GPU: its plan, proofs, times, and the measured step.

    python benchmarks/fused_own_module.py OUT [--device cpu]

A decoder written by hand (RMS norms, rotary embedding, attention, gated MLPs; 16 layers of 2,048) in bf16. `verify`
comes first, in a process that no profiler has slowed; then `profile` records it, `fuse --all` writes and times its
kernels beside torch.compile's, and `predict` says with them what `verify` should measure. A minute or two a shape.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (each(x).view(batch, tokens, self.heads, -1).transpose(1, 2) for each in (self.q, self.k, self.v))
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(batch, tokens, width))


class MLP(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.norm1, self.attention = RMSNorm(width), Attention(width, heads)
        self.norm2, self.mlp = RMSNorm(width), MLP(width, inner)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, width: int = 2048, layers: int = 16, vocabulary: int = 32_000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Block(width, width // 64, 4 * width) for _ in range(layers))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", type=Path)
    asked.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = asked.parse_args()
    if options.device == "cpu":
        from tracekit.fusion.proof import interpret

        interpret()
    import tracekit

    torch.manual_seed(0)
    options.out.mkdir(parents=True, exist_ok=True)
    small, here = options.device == "cpu", torch.device(options.device)
    model = (Decoder(64, 2, 100) if small else Decoder()).to(here, torch.float32 if small else torch.bfloat16).eval()
    result: dict[str, Any] = {}
    for name, shape in {"decode-like": (1, 1), "prefill": (1, 5) if small else (8, 1024)}.items():
        tokens = torch.randint(100, shape, device=here)
        result[name] = measured(tracekit, model, tokens, options.out / name)
        (options.out / "own_module.json").write_text(json.dumps(result, indent=1) + "\n")
        print(name, json.dumps(result[name], indent=1), flush=True)


def measured(tracekit: Any, model: nn.Module, tokens: torch.Tensor, run: Path) -> dict[str, Any]:
    from tracekit.analyzers import hardware
    from tracekit.fusion import run_kernels
    from tracekit.fusion.run_graph import gpu_of
    from tracekit.reports.fusion_text import results_text

    on_gpu = tokens.is_cuda
    row: dict[str, Any] = {}
    if on_gpu:
        (verified,) = tracekit.verify(model, {"tokens": tokens}, apply=["fused:all"]).results
        row["verify"] = {key: str(getattr(verified, key)) for key in ("predicted", "measured", "caveats", "difference")}
        row["verified"] = str(verified)
    with torch.inference_mode():
        tracekit.profile(
            model, tokens, output=run, force=True, **({} if on_gpu else {"gpu": "h100", "device": "model"})
        )
    gpu = gpu_of(run) if on_gpu else hardware.find("h100")
    row["fuse"] = results_text(run_kernels.write(run, gpu, (), run / "kernels")).splitlines()
    predicted = tracekit.predict(run, apply="fused:all")
    row["predicted with the times"] = str(predicted.speedup)
    row["plan"] = (
        tracekit.analyze(run)
        .fusion_plan[["pattern", "groups", "before_ns", "after_ns", "measured_ns", "compiled_ns", "roof_fraction"]]
        .to_dict("records")
    )
    return row


if __name__ == "__main__":
    main()
