"""Jobs of several GPUs of one host: healthy and with planted faults, their scaling, and NCCL's own bandwidths.

    python benchmarks/ranks_gpu/record.py OUT

Needs torch and transformers, and no tracekit. Takes three to four minutes on two H200. Files in OUT:

    one.tar                                     traces of one GPU by itself
    medium.tar, small.tar, fsdp.tar, tensor.tar JOB/rank-N.json.xz, a few steps a rank; small.tar also holds traces of
                                                single collectives, in sweep
    measured.json                               step times without a profiler: of one GPU, of all together, and of all
                                                at once without communication, by rank and part of a step;
                                                bandwidths of collectives by size
    planted.json                                which job has which fault, on which rank: not to be read before the
                                                verdict

`--device cpu --tiny --ranks 2` tries everything on gloo. NVLink multicast stays off.
"""

import argparse
import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import contender
import environment  # noqa: F401  first
import packing
import planting
import torch
import transformers
import transformers.models.bert.modeling_bert
import transformers.models.gpt2.modeling_gpt2
import transformers.models.llama.modeling_llama
from rank import run
from torch import multiprocessing
from workloads import PARTS, SCALED

PACKS = ("one", *planting.KINDS)
MEASUREMENTS = ("sweep", "scaling", "jobs")
_KILLED_AFTER_S = 15.0


def main() -> None:
    asked = _arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    seed = asked.seed if asked.seed is not None else int.from_bytes(os.urandom(4), "big")
    planted = planting.draw(seed, asked.ranks)
    _write(asked.out / "planted.json", {"seed": seed, "jobs": {name: vars(fault) for name, fault in planted.items()}})
    asked.begun = time.time()
    asked.port, asked.deadline = _free_port(), asked.begun + asked.seconds
    _run_ranks(asked, planted)
    packing.pack(asked.out / "recorded", PACKS, asked.out)
    shutil.rmtree(asked.out / "recorded", ignore_errors=True)
    print(f"{time.time() - asked.begun:.0f} s")
    print(_table(asked.out / "measured.json"), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--ranks", type=int, default=None, help="by default, all GPUs")
    parser.add_argument("--parts", nargs="+", choices=MEASUREMENTS, default=MEASUREMENTS)
    parser.add_argument("--kinds", nargs="+", choices=planting.KINDS, default=planting.KINDS, help="of jobs")
    parser.add_argument("--scaled", nargs="+", choices=SCALED, default=tuple(SCALED), help="training to scale")
    parser.add_argument("--tiny", action="store_true", help="models of two narrow layers")
    parser.add_argument("--seconds", type=float, default=185.0, help="nothing new is begun after this time")
    parser.add_argument("--seed", type=int, help="of the planted faults; by default, of the system's entropy")
    asked = parser.parse_args()
    asked.ranks = asked.ranks or (torch.cuda.device_count() if asked.device == "cuda" else 2)
    asked.transformers = transformers.__version__
    return asked


def _run_ranks(asked: argparse.Namespace, planted: dict) -> None:
    """Ranks that hang are killed a while after the deadline; what they have written stays."""
    contenders = contender.started(asked, planted)
    ranks = multiprocessing.start_processes(
        run, args=(asked, planted, contenders), nprocs=asked.ranks, join=False, start_method="fork"
    )
    try:
        while not ranks.join(timeout=1.0):
            if time.time() > asked.deadline + _KILLED_AFTER_S:
                print("killed: the ranks did not end in time", flush=True)
                break
    except Exception as error:  # a rank failed; what the others wrote is packed all the same
        print(str(error)[-2000:], flush=True)
    for process in [*ranks.processes, *(each.process for each in contenders)]:
        process.kill()


def _table(path: Path) -> str:
    if not path.exists():
        return f"{path.name}: not written"
    written = json.loads(path.read_text(encoding="utf-8"))
    lines = [f"{row['workload']:16} {row['ranks']} ranks {row['mean_ms']:9.3f} ms a step" for row in written["times"]]
    lines += [_row(row) for row in written["scaled"]]
    lines += [f"{row['job']:16} {row['mean_ms']:17.3f} ms a step" for row in written["jobs"]]
    largest = max((row["bytes"] for row in written["sweep"]), default=0)
    lines += [
        f"{row['kind']:16} {row['bytes'] >> 20} MiB, {row['bus_gbs']:6.1f} GB/s on the bus"
        for row in written["sweep"]
        if row["bytes"] == largest
    ]
    return "\n".join([*lines, *(f"failed: {each}" for each in written["errors"])])


def _row(row: dict[str, Any]) -> str:
    parts = ", ".join(f"{part} {row[part]:.2f}" for part in PARTS)
    return f"{row['workload']:16} {row['mode']:8} rank {row['rank']} {row['ms']:9.3f} ms: {parts}"


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


if __name__ == "__main__":
    main()
