"""Fused kernels for a module of one's own on a GPU: its plan, proofs, times, and the measured step.

    python benchmarks/fused_own_module.py OUT [--parts verified,fused] [--layers 16] [--seconds 60] [--device cpu]
    python benchmarks/fused_own_module.py OUT --parts fused --layers 4 --seconds 34    # the kernels alone: 40 s

A decoder written by hand (RMS norms, attention, gated MLPs; 16 layers of 2,048) in bf16, 8 x 1,024 tokens and one.
`verified` comes first for both, before a profiler slows the process; then `profile` records them, `fuse` writes and
times their kernels beside torch.compile's, those that save most first, and `predict` says with them what `verify`
should have measured. Layers are alike: fewer of them have the same kernels.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import nn

_PLAN = ("pattern", "groups", "before_ns", "after_ns", "measured_ns", "compiled_ns", "roof_fraction")


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
    asked.add_argument("--parts", default="verified,fused")
    asked.add_argument("--layers", type=int, default=16)
    asked.add_argument("--seconds", type=float, default=60, help="no part and no kernel is begun after them")
    options = asked.parse_args()
    until = time.monotonic() + options.seconds
    small = options.device == "cpu"
    if small:
        from tracekit.fuse.proof import interpret

        interpret()
    torch.manual_seed(0)
    options.out.mkdir(parents=True, exist_ok=True)
    with torch.device(options.device):
        model = Decoder(64, 2, 100) if small else Decoder(layers=options.layers).bfloat16()
    model.eval()
    shapes = {"prefill": (1, 5) if small else (8, 1024), "decode-like": (1, 1)}
    result: dict[str, dict[str, Any]] = {name: {"layers": len(model.layers), "shape": s} for name, s in shapes.items()}
    for part in (PARTS[name] for name in options.parts.split(",")):
        for name, shape in shapes.items():
            if time.monotonic() < until:
                tokens = torch.randint(100, shape, device=options.device)
                for more in part(model, tokens, options.out / name, until):
                    result[name] |= more
                    print(f"{until - time.monotonic():4.0f} s left  {name} {more.get('fuse', [more])[-1]}", flush=True)
                    (options.out / "own_module.json").write_text(json.dumps(result, indent=1) + "\n")


def verified(model: nn.Module, tokens: torch.Tensor, _: Path, __: float) -> Iterator[dict[str, Any]]:
    """Return the predicted and the measured gain of all kernels, with the step before and after."""
    import tracekit

    if not tokens.is_cuda:
        return
    (each,) = tracekit.verify(model, {"tokens": tokens}, apply=["fused:all"]).results
    names = ("predicted", "measured", "before", "after", "caveats", "difference", "error")
    yield {"verify": {name: msgspec.to_builtins(getattr(each, name)) for name in names}}


def fused(model: nn.Module, tokens: torch.Tensor, run: Path, until: float) -> Iterator[dict[str, Any]]:
    """Record the step, write and time its kernels one by one, and return their plan and what is predicted with them."""
    import tracekit
    from tracekit.analyzers.cost import hardware
    from tracekit.fuse import gpu_of, run_kernels
    from tracekit.reports.fuse import results_text
    from tracekit.reports.words import speedup

    where: dict[str, Any] = {} if tokens.is_cuda else {"gpu": "h100", "device": "model"}
    with torch.inference_mode():
        tracekit.profile(model, tokens, output=run, force=True, **where)
    gpu = gpu_of(run) if tokens.is_cuda else hardware.find("h100")
    rows, said = run_kernels.rows_of(run, gpu)[0], []
    for number in [number for number, row in enumerate(rows, 1) if row.template]:
        if time.monotonic() < until:
            results = run_kernels.write(run, gpu, (number,), run / "kernels")
            said += results_text(results).splitlines()
            yield {"fuse": said}
    plan = tracekit.analyze(run).fusion_plan[list(_PLAN)]
    gain = speedup(tracekit.predict(run, apply="fused:all").speedup)
    yield {"predicted with the times": gain, "plan": plan.to_dict("records")}


PARTS = {"verified": verified, "fused": fused}


if __name__ == "__main__":
    main()
