"""Times single op calls on this machine's GPU, and writes benchmarks/data/h200_kernels.csv on an H200.

    python benchmarks/measure_kernels.py OUT.csv [GROUP ...]

A row is an op call: its signature as a trace records it (measurements/signatures.py), the duration of its kernels by
CUPTI (torch.profiler), the median of four, `cold` after 256 MB of other memory were read and `warm` when run again, and
for copies the wall time. About four minutes.
"""

import argparse
import csv
import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from kernel_cases import attention, elementwise, gathers, others, products, rows, sequences
from kernel_cases.case import DEVICE, FP32, Case, rand
from kernel_times import Walls, op_rows, recorded_events
from torch.profiler import ProfilerActivity, profile, record_function

GROUPS = {
    "attention": attention.attentions,
    "products": products.products,
    "strided": elementwise.strided,
    "contiguous": elementwise.contiguous,
    "reductions": rows.reductions,
    "norms": rows.norms,
    "copies": others.copies,
    "gathers": gathers.gathers,
    "losses": rows.losses,
    "narrow-products": products.narrow_products,
    "optimizers": others.optimizers,
    "convolutions": products.convolutions,
    "scans": sequences.scans,
    "batch-norms": sequences.batch_norms,
    "recurrent": sequences.recurrent,
}
_REPEATS = 4
_A_TRACE = 120
_FLUSHED_ELEMENTS = 64 << 20
_HEAD = ("label", "op", "inputs", "elements", "cold_us", "warm_us", "kernels", "wall_us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    asked = parser.parse_args()
    flushed = torch.zeros(_FLUSHED_ELEMENTS, device=DEVICE)
    _warm_up()
    with asked.out.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(_HEAD)
        for name in asked.groups or GROUPS:
            started = time.monotonic()
            cases = list(GROUPS[name]())
            for first in range(0, len(cases), _A_TRACE):
                out.writerows(measured(cases[first : first + _A_TRACE], flushed))
            print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)


def measured(known: Sequence[Case], flushed: torch.Tensor) -> Iterator[tuple[object, ...]]:
    """Yield rows of the file. A case that this GPU or PyTorch cannot run is named and left out."""
    walls = Walls()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:
        for number, case in enumerate(known):
            try:
                _run(number, case, flushed, walls)
            except (RuntimeError, ValueError) as error:
                print(f"{case.label}: {str(error).splitlines()[0][:100]}", flush=True)
                torch.cuda.synchronize()
    events = recorded_events(profiler)
    del profiler
    gc.collect()
    torch.cuda.empty_cache()
    return op_rows(known, events, walls)


def _run(number: int, case: Case, flushed: torch.Tensor, walls: Walls) -> None:
    run = case.setup()
    run()
    run()
    torch.cuda.synchronize()
    for state in ("cold", "warm"):
        for repeat in range(_REPEATS + (state == "warm")):
            if state == "cold":
                flushed.sum()
            begin = time.perf_counter()
            with record_function(f"case:{number}:{state}:{repeat}"):
                run()
            if state == "warm":
                torch.cuda.synchronize()
                walls.add(number, time.perf_counter() - begin)
    torch.cuda.synchronize()


def _warm_up() -> None:
    """Compute for a while, because clocks rise under load."""
    matrix = rand(8192, 8192, dtype=FP32)
    for _ in range(50):
        matrix @ matrix
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
