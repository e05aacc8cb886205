"""Run two Triton kernels and a product under Triton's Proton, eagerly or as a graph.

    python benchmarks/graph_captures/proton_kernels.py NAME tree|trace shadow|python eager|graph

writes NAME.hatchet or NAME.chrome_trace. Needs a GPU, torch and triton.
"""

import sys
from typing import Any

import torch
import triton
import triton.language as tl
import triton.profiler as proton

_SIZE = 1 << 20


def _metadata(_grid: Any, kernel: Any, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": f"{kernel.name}_{args['size']}", "flops32": args["size"], "bytes": 12 * args["size"]}


@triton.jit(launch_metadata=_metadata)
def add(x, y, out, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    here = at < size
    tl.store(out + at, tl.load(x + at, mask=here) + tl.load(y + at, mask=here), mask=here)


@triton.jit
def scale(x, out, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    here = at < size
    tl.store(out + at, tl.load(x + at, mask=here) * 2.0, mask=here)


def layer(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    grid = (triton.cdiv(_SIZE, 1024),)
    with proton.scope("attention"):
        add[grid](x, y, out, _SIZE, block=1024)
        torch.mm(x.view(1024, 1024), y.view(1024, 1024), out=out.view(1024, 1024))
    with proton.scope("mlp"):
        scale[grid](out, out, _SIZE, block=1024)


def main() -> None:
    name, data, context, how = sys.argv[1:]
    tensors = [torch.ones(_SIZE, device="cuda") for _ in range(3)]
    layer(*tensors)
    torch.cuda.synchronize()
    session = proton.start(name, data=data, context=context, hook="triton")
    if how == "eager":
        _eager(*tensors)
    else:
        _graph(*tensors)
    torch.cuda.synchronize()
    proton.finalize(session)
    print(f"{data} {context} {how}: triton {triton.__version__}")


def _eager(*tensors: torch.Tensor) -> None:
    for step in range(3):
        with proton.scope(f"step_{step}", metrics={"tokens": 1024}):
            for number in range(2):
                with proton.scope(f"layer_{number}"):
                    layer(*tensors)


def _graph(*tensors: torch.Tensor) -> None:
    graph = torch.cuda.CUDAGraph()
    with proton.scope("capture"), torch.cuda.graph(graph):
        layer(*tensors)
    for step in range(3):
        with proton.scope(f"step_{step}"):
            graph.replay()


if __name__ == "__main__":
    main()
