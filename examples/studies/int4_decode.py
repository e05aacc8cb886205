"""Times the decode of our int4 layers beside fp16 in CUDA graphs, and each layer beside cuBLAS, on this GPU.

    python examples/studies/int4_decode.py --out FOLDER [--model llama-3.2-3b] [--blocks N] [--seconds 95] [--layers]

Both models are compiled, project q, k and v, and gate and up, in one GEMM (fp16: unless --separate), and attend with
PyTorch's kernel or with that of decode_attention; int4 with the latter has five kernels a layer (fuse_decoder). Kernels
start before those before them have ended (programmatic dependent launch). Numbers are checked first. Layers are timed
over copies of their weights that together exceed the L2. FOLDER/int4_decode.json holds all rows, and is written again
after each; no layer is begun whose end is not expected within --seconds.
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from msgspec.structs import replace

from tracekit.apply import Subject, prepare
from tracekit.capture import NoRanges, models
from tracekit.fuse.kernels import decode_attention, packed_projections
from tracekit.fuse.kernels import weight_only_product as kernel
from tracekit.quantization import fuse_decoder, quantize
from tracekit.run import Settings

LAYERS = {
    "gate, up": (8192, 3072),
    "down": (3072, 8192),
    "q, k, v": (5120, 3072),
    "q, o": (3072, 3072),
    "gate + up": (16384, 3072),
    "gate, up of 8B": (14336, 4096),
    "down of 8B": (4096, 14336),
    "q, o of 8B": (4096, 4096),
    "k": (1024, 3072),
}
"""Outputs and inputs of the layers of Llama-3.2-3B and of Llama-3.1-8B."""
_COLD_BYTES = 200e6
_TRIES = [
    {"ROWS": 16, "DEEP": 2, "num_warps": 4},
    {"ROWS": 8, "DEEP": 8, "num_warps": 8},
    {"ROWS": 8, "DEEP": 4, "num_warps": 4},
]
_LAYER_SECONDS = 6
"""Time that a layer is expected to take, assumed."""
VARIANTS = (("fp16", "ours"), ("int4", "ours"), ("fp16", "sdpa"))
"""Formats of weights and attentions of the steps that are timed."""
ROUNDS, COMPILERS = 5, 4


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--model", default="llama-3.2-3b")
    asked.add_argument("--seconds", type=float, default=95)
    asked.add_argument("--separate", action="store_true", help="do not join the projections of the fp16 model")
    asked.add_argument("--layers", action="store_true", help="time no model")
    asked.add_argument("--blocks", type=int, help="cut the model to its first decoder layers")
    options = asked.parse_args()
    began = time.monotonic()
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "pdl": has_pdl(),
        "separate": options.separate,
        "rows": [],
    }
    about = {"model": "" if options.layers else options.model, "separate": options.separate, "blocks": options.blocks}
    for row in rows(**about, ends=began + options.seconds):
        row["at_s"] = round(time.monotonic() - began, 1)
        print(*(f"{name} {value}" for name, value in row.items()), sep="  ", flush=True)
        result["rows"].append(row)
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "int4_decode.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


@torch.inference_mode()
def rows(model: str, separate: bool, blocks: int | None, ends: float) -> Iterator[dict[str, Any]]:
    running = started(model, separate, blocks) if model else []
    yield from errors()
    yield from decodes(running, {"model": model, "blocks": blocks}) if running else ()
    for name, shape in LAYERS.items():
        if time.monotonic() < ends - _LAYER_SECONDS:
            yield from layer(name, *shape)


def errors() -> Iterator[dict[str, Any]]:
    """Yield the error of each format relative to fp32 with the same weights; more than 1 % ends the program."""
    half, brain = torch.float16, torch.bfloat16
    tried = (
        (half, 4, 64, 1, 3072),
        (half, 4, 3072, 3, 3070),
        (half, 8, 64, 1, 8),
        (brain, 4, 64, 8, 8),
        (brain, 8, 64, 1, 8),
    )
    for dtype, bits, group, many, columns in tried:
        x, packed, scale, _, _ = kernel.example(dtype, "cuda", many, columns, 3072, bits, group)
        exact = kernel.reference(x.float(), packed, scale.float(), None, bits)
        error = float((kernel.fused(x, packed, scale, None, bits) - exact).norm() / exact.norm())
        yield {"part": "error", "dtype": str(dtype), "bits": bits, "group": group, "inputs": many, "error": error}
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


def layer(name: str, outputs: int, inputs: int) -> Iterator[dict[str, Any]]:
    """Yield the time of a layer in fp16, and in int4 with the usual launch and with others."""
    x = torch.randn(1, inputs, dtype=torch.float16, device="cuda")
    bytes_16 = 2 * outputs * inputs
    wide = torch.randn(outputs, inputs, dtype=torch.float16, device="cuda") * inputs**-0.5
    wides = [wide.clone() for _ in range(max(2, int(_COLD_BYTES / bytes_16)))]
    half_us = graph_us(lambda: [torch.nn.functional.linear(x, each) for each in wides]) / len(wides)
    packed, scale = kernel.pack(wide, 4, 64)
    sets = [(packed.clone(), scale.clone()) for _ in range(max(2, int(_COLD_BYTES / packed.nbytes)))]
    ratio = bytes_16 / (packed.nbytes + scale.nbytes)
    usual = kernel.CONFIG

    def int4_us(config: dict[str, int], early: bool = True) -> float:
        with Starting(early):
            kernel.CONFIG = config
            us = graph_us(lambda: [kernel.fused(x, *each) for each in sets]) / len(sets)
            kernel.CONFIG = usual
        return us

    times = [(int4_us(config), config) for config in [usual, *(each for each in _TRIES if each != usual)]]
    for early, us in ((True, times[0][0]), (False, int4_us(usual, False))):
        gain = half_us / us
        yield {
            "part": "layer", "name": name, "early": early, **usual, "fp16_us": round(half_us, 2), "us": round(us, 2),
            "gain": round(gain, 2), "of_bytes": round(gain / ratio, 2), "TB/s": round(bytes_16 / ratio / us / 1e6, 2),
            "fp16_TB/s": round(bytes_16 / half_us / 1e6, 2),
        }  # fmt: skip
    yield {"part": "tried", "name": name, "all": [[*config.values(), round(us, 2)] for us, config in times]}


def started(name: str, separate: bool, blocks: int | None) -> list[Any]:
    """Return connections to processes of which each compiles a variant."""
    spawned, running = multiprocessing.get_context("spawn"), []
    for variant in VARIANTS:
        ours, theirs = spawned.Pipe()
        spawned.Process(target=serve, args=(theirs, name, separate, blocks, *variant), daemon=True).start()
        theirs.close()
        running.append(ours)
    return running


def decodes(running: list[Any], about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the time of a decode step in each variant, and how far its logits are from those of single ops.

    They are timed in turns.
    """
    built = []
    for (to, attention), each in zip(VARIANTS, running, strict=True):
        built.append(each.recv())
        yield {"part": "built", "format": to, "attention": attention, **built[-1]}
    taken: list[list[float]] = [[] for _ in running]
    for _ in range(ROUNDS):
        for each, us in zip(running, taken, strict=True):
            each.send("time")
            us.append(each.recv())
    steps = {variant: round(median(us), 1) for variant, us in zip(VARIANTS, taken, strict=True)}
    for (to, attention), us in steps.items():
        yield {"part": "step", "format": to, "attention": attention, "us": us}
    for each in running:
        each.send("")
    sizes = {to: each["bytes"] for (to, _), each in zip(VARIANTS, built, strict=True)}
    ratio = sizes["fp16"] / sizes["int4"]
    for (to, attention), us in steps.items():
        if to == "int4":
            before = steps["fp16", attention]
            yield {
                "part": "decode", **about, "attention": attention, "early": True, "fp16_us": before, "us": us,
                "gain": round(before / us, 3), "bytes": round(ratio, 3), "of_bytes": round(before / us / ratio, 3),
            }  # fmt: skip


@torch.inference_mode()
def serve(pipe: Any, name: str, separate: bool, blocks: int | None, to: str, attention: str) -> None:
    """Send the bytes of a variant's weights and the error of its logits, then the time of its step whenever asked."""
    settings = Settings(model=name, workload="decode", seq_len=256, dtype="fp16", device="cuda")
    model = cut(models.build_for(settings).eval(), blocks)
    model = model if to == "fp16" else quantize(model, "int4")
    model = model if separate and to == "fp16" else packed_projections.apply(model)
    torch._inductor.config.triton.enable_pdl = has_pdl()
    torch._inductor.config.compile_threads = COMPILERS
    subject = Subject(model=model, settings=settings, static_cache=True, graphs=True, compile_mode="default")
    with subject.numerics():
        exact = prepare(replace(subject, compile_mode="", graphs=False))(NoRanges()).float()
        if attention == "ours":
            decode_attention.apply(model)
            model = fuse_decoder(model) if to == "int4" else model
        step = prepare(subject)
        error = float((step(NoRanges()).float() - exact).norm() / exact.norm())
        pipe.send(
            {"bytes": read_bytes(model), "error": error, "alone_us": round(timed_us(lambda: step(NoRanges())), 1)}
        )
        while pipe.recv():
            pipe.send(timed_us(lambda: step(NoRanges())))


def has_pdl() -> bool:
    """Return whether this PyTorch can start its kernels before those before them have ended."""
    return hasattr(torch._inductor.config.triton, "enable_pdl")


def cut(model: Any, blocks: int | None) -> Any:
    """Return the model with its first decoder layers only; None: with all."""
    if blocks:
        model.model.layers, model.config.num_hidden_layers = model.model.layers[:blocks], blocks
    return model


def read_bytes(module: Any) -> int:
    """Return the bytes of weights that a step reads: of an embedding that is not also the head, one row."""
    embedding, head = module.get_input_embeddings().weight, module.get_output_embeddings().weight
    unread = 0 if embedding is head else embedding.nbytes
    return sum(each.nbytes for each in (*module.parameters(), *module.buffers())) - unread


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
