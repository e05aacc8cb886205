"""Jobs of eight ranks in five ways of sharing a model, each healthy and with a sealed fault: which faults are named.

    python -m benchmarks ranks.eight_jobs draw sealed/plan.json rows.csv
    python -m benchmarks ranks.eight_jobs run sealed/plan.json traces --device cuda
    python -m benchmarks ranks.eight_jobs diagnose traces rows.csv
    python -m benchmarks ranks.eight_jobs score sealed/plan.json rows.csv

`draw` writes salted hashes of the plan's rows into rows.csv, which is committed with the diagnosis before `score` opens
the plan. `--device cpu` uses gloo and small models.
"""

import argparse
import csv
import hashlib
import json
import os
import random
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import multiprocessing

import tracekit
from benchmarks.ranks.eight_ranks import FAULTS, HEALTHY, KINDS, MORE_CALLS, SIZES, Rank, run
from tracekit.analyzers.ranks import Job

COLUMNS = ("job", "sealed", "said", "planted", "right")
Row = dict[str, str]


def draw(plan: Path, rows: Path, seed: int | None, world: int) -> None:
    """Each kind of job runs twice, in an order that the names do not tell; each fault is planted in one kind."""
    chance = random.Random(secrets.randbits(64) if seed is None else seed)
    faults = dict(zip(KINDS, chance.sample(FAULTS, len(KINDS)), strict=True))
    jobs = {}
    for kind, fault in faults.items():
        for letter, planted in zip("ab", chance.sample([HEALTHY, fault], 2), strict=True):
            rank = -1 if planted == HEALTHY else chance.randrange(world)
            jobs[f"{kind}-{letter}"] = {"fault": planted, "rank": rank, "salt": secrets.token_hex(16)}
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text(json.dumps({"ranks": world, "jobs": jobs}, indent=1), encoding="utf-8")
    write(rows, [{"job": job, "sealed": sealed(job, row)} for job, row in jobs.items()])


def sealed(job: str, row: dict[str, object]) -> str:
    return hashlib.sha256(f"{row['salt']} {job} {row['rank']} {row['fault']}".encode()).hexdigest()


def record(plan: Path, traces: Path, device: str, only: Sequence[str]) -> None:
    told = json.loads(plan.read_text(encoding="utf-8"))
    for job, row in told["jobs"].items():
        if not only or job in only:
            (traces / job).mkdir(parents=True, exist_ok=True)
            start = "spawn" if device == "cuda" else "fork"
            arguments = (told["ranks"], device, row["fault"], row["rank"], traces / job, _free_port())
            multiprocessing.start_processes(_run, arguments, told["ranks"], start_method=start)
            print(f"{job}: recorded", flush=True)


def _run(number: int, world: int, device: str, fault: str, faulty: int, folder: Path, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCAL_RANK=str(number))
    mine = fault if number == faulty else ""
    rank = Rank(number, world, SIZES[device], mine, fault == MORE_CALLS, torch.device(device, number))
    run(rank, folder.name.rpartition("-")[0], folder / f"rank-{number}.json.gz")


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def diagnose(traces: Path, rows: Path) -> None:
    """Write what is said of each job, without looking at the plan."""
    told = read(rows)
    for row in told:
        if (traces / row["job"]).is_dir():
            row["said"] = said(tracekit.ranks(traces / row["job"]))
            print(f"{row['job']}: {row['said']}", flush=True)
    write(rows, told)


def said(job: Job) -> str:
    """Return "rank cause" of each fault that is named, or healthy."""
    named = [f"{each.rank} {each.reason.cause}" for each in job.stragglers]
    problems = job.problems.loc[job.problems["code"].str.startswith("collective-"), "message"]
    return "; ".join([*named, *problems]) or HEALTHY


def score(plan: Path, rows: Path) -> None:
    jobs, told = json.loads(plan.read_text(encoding="utf-8"))["jobs"], read(rows)
    for row in told:
        planted = jobs[row["job"]]
        if sealed(row["job"], planted) != row["sealed"]:
            raise SystemExit(f"{row['job']}: this is not the plan that was sealed.")
        row["planted"] = HEALTHY if planted["fault"] == HEALTHY else f"{planted['rank']} {planted['fault']}"
        row["right"] = str(row["said"] == row["planted"]).lower() if row["said"] else ""
    write(rows, told)
    for name, healthy in (("faults", False), ("healthy jobs", True)):
        rights = [row["right"] for row in told if row["right"] and (row["planted"] == HEALTHY) == healthy]
        print(f"{name}: {rights.count('true')} of {len(rights)} right")


def read(rows: Path) -> list[Row]:
    with rows.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(rows: Path, table: Sequence[Row]) -> None:
    with rows.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("draw", "run", "diagnose", "score"))
    parser.add_argument("source", type=Path, help="The plan; for diagnose, the traces.")
    parser.add_argument("target", type=Path, help="The rows; for run, the traces.")
    parser.add_argument("--device", choices=tuple(SIZES), default="cpu")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seed", type=int, help="Makes the draw repeatable, and known to whoever knows the seed.")
    parser.add_argument("--only", nargs="*", default=[], metavar="JOB")
    asked = parser.parse_args()
    if asked.do == "draw":
        draw(asked.source, asked.target, asked.seed, asked.ranks)
    elif asked.do == "run":
        record(asked.source, asked.target, asked.device, asked.only)
    else:
        {"diagnose": diagnose, "score": score}[asked.do](asked.source, asked.target)


if __name__ == "__main__":
    main()
