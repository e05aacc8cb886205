"""Times our int4 layers at one row beside cuBLAS in fp16, and the whole decode, in CUDA graphs on this GPU.

    python examples/studies/int4_decode.py --out FOLDER [--model llama-3.2-3b] [--seconds 140]

Each layer is timed over copies of its weights that together exceed the L2, in each launch configuration. Numbers are
checked first. FOLDER/int4_decode.json holds all rows, and is written again after each part.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from tracekit.apply import Subject, prepare
from tracekit.capture import NoRanges, models
from tracekit.fuse.kernels import weight_only_product as kernel
from tracekit.quantization import quantize
from tracekit.run import Settings

LAYERS = {
    "k": (1024, 3072),
    "q, o": (3072, 3072),
    "gate, up": (8192, 3072),
    "down": (3072, 8192),
    "q, o of 8B": (4096, 4096),
    "gate, up of 8B": (14336, 4096),
    "down of 8B": (4096, 14336),
}
"""Outputs and inputs of the layers of Llama-3.2-3B and of Llama-3.1-8B."""
_COLD_BYTES = 200e6
_TRIES = [
    {"ROWS": rows, "DEEP": deep, "num_warps": warps}
    for (rows, deep), warps in product(((2, 4), (4, 2), (4, 4), (8, 1), (8, 2)), (2, 4, 8))
]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--model", default="llama-3.2-3b")
    asked.add_argument("--seconds", type=float, default=140, help="no part is begun after them")
    options = asked.parse_args()
    ends = time.monotonic() + options.seconds
    result = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": []}
    for row in rows(options.model, ends):
        print(*(f"{name} {value}" for name, value in row.items()), sep="  ", flush=True)
        result["rows"].append(row)
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "int4_decode.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


@torch.inference_mode()
def rows(model: str, ends: float) -> Iterator[dict[str, Any]]:
    yield from errors()
    yield from decodes(model, False, ends)
    for name, shape in LAYERS.items():
        if time.monotonic() < ends - 45:
            yield from layer(name, *shape, ends - 45)
    yield from decodes(model, True, ends)
    yield from decodes(model, False, ends)


def errors() -> Iterator[dict[str, Any]]:
    """Yield the error of each format relative to fp32 with the same weights; more than 1 % ends the program."""
    for dtype, bits, group, early in product((torch.float16, torch.bfloat16), (4, 8), (64, 3072), (False, True)):
        with Starting(early):
            x, packed, scale, _, _ = kernel.example(dtype, "cuda", 1, 3072, 3072, bits, group)
            exact = kernel.reference(x.float(), packed, scale.float(), None, bits)
            error = float((kernel.fused(x, packed, scale, None, bits) - exact).norm() / exact.norm())
        yield {"part": "error", "dtype": str(dtype), "bits": bits, "group": group, "early": early, "error": error}
        if not error < 0.01:
            raise SystemExit("The kernel is wrong.")


class Starting:
    """Choose whether kernels start before the one before them has finished."""

    def __init__(self, early: bool) -> None:
        self._early, self._before = early, kernel._starts_early

    def __enter__(self) -> None:
        kernel._starts_early = lambda device: self._early and self._before(device)

    def __exit__(self, *_: object) -> None:
        kernel._starts_early = self._before


def layer(name: str, outputs: int, inputs: int, ends: float) -> Iterator[dict[str, Any]]:
    """Yield the time of a layer in fp16, and the fastest and all times in int4."""
    x = torch.randn(1, inputs, dtype=torch.float16, device="cuda")
    bytes_16 = 2 * outputs * inputs
    wide = torch.randn(outputs, inputs, dtype=torch.float16, device="cuda") * inputs**-0.5
    wides = [wide.clone() for _ in range(max(2, int(_COLD_BYTES / bytes_16)))]
    half_us = graph_us(lambda: [torch.nn.functional.linear(x, each) for each in wides]) / len(wides)
    packed, scale = kernel.pack(wide, 4, 64)
    sets = [(packed.clone(), scale.clone()) for _ in range(max(2, int(_COLD_BYTES / packed.nbytes)))]
    ratio = bytes_16 / (packed.nbytes + scale.nbytes)

    def int4_us(config: dict[str, int], early: bool) -> float:
        with Starting(early):
            kernel.CONFIG = config
            return graph_us(lambda: [kernel.fused(x, *each) for each in sets]) / len(sets)

    times = [(int4_us(config, True), config) for config in _TRIES if time.monotonic() < ends]
    us, best = min(times, key=lambda each: each[0])
    alone, chosen = int4_us(best, False), int4_us({}, True)
    for early, taken in ((True, us), (False, alone)):
        gain = half_us / taken
        yield {
            "part": "layer",
            "name": name,
            "early": early,
            **best,
            "fp16_us": round(half_us, 2),
            "us": round(taken, 2),
            "gain": round(gain, 2),
            "of_bytes": round(gain / ratio, 2),
        }
    yield {"part": "by the shape", "name": name, "us": round(chosen, 2)}
    yield {"part": "tried", "name": name, "all": [[*config.values(), round(us, 2)] for us, config in times]}


def decodes(model: str, compiled: bool, ends: float) -> Iterator[dict[str, Any]]:
    """Yield the time of a decode step in fp16 and in int4."""
    settings = Settings(model=model, workload="decode", seq_len=256, dtype="fp16", device="cuda")
    module = models.build_for(settings).eval()
    subject = Subject(
        model=module, settings=settings, static_cache=True, graphs=True, compile_mode="default" if compiled else ""
    )
    before_us, before_bytes = step_us(subject), nbytes(module)
    inner = sum(layer.weight.nbytes for layer in module.modules() if type(layer).__name__ == "Linear")
    quantize(module, "int4")
    ratio = (before_bytes - inner_embedding(module)) / (nbytes(module) - inner_embedding(module))
    for early in (True, False)[: 1 if compiled else 2]:
        if time.monotonic() > ends:
            return
        with Starting(early):
            torch._dynamo.reset()
            us = step_us(replace(subject, model=module))
        yield {"part": "decode", "model": model, "compiled": compiled, "early": early, "fp16_us": round(before_us, 1),
               "us": round(us, 1), "gain": round(before_us / us, 3), "bytes": round(ratio, 3),
               "of_bytes": round(before_us / us / ratio, 3), "linear_bytes": inner}  # fmt: skip
    torch._dynamo.reset()


def inner_embedding(module: Any) -> int:
    """Return the bytes of an embedding that is not also the head: a step reads one row of it."""
    embedding, head = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    return 0 if embedding is head else int(embedding.nbytes)


def nbytes(module: Any) -> int:
    return sum(each.nbytes for each in (*module.parameters(), *module.buffers()))


def step_us(subject: Subject) -> float:
    with subject.numerics():
        step = prepare(subject)
        return timed_us(lambda: step(NoRanges()))


def graph_us(calls: Callable[[], Any]) -> float:
    """Return the time of a CUDA graph of these calls."""
    calls()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = calls()
    us = timed_us(graph.replay)
    del kept
    return us


def timed_us(call: Callable[[], Any], times: int = 15) -> float:
    taken = []
    for _ in range(times + 3):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) * 1e3)
    return median(taken[3:])


if __name__ == "__main__":
    main()
