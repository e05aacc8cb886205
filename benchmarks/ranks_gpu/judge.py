"""What tracekit says of the jobs that record.py recorded, and how right it was. Three steps, in this order:

    python benchmarks/ranks_gpu/judge.py RESULTS predict    # scaling, from the traces of one GPU: predicted_blind.json
    python benchmarks/ranks_gpu/judge.py RESULTS verdict    # tracekit ranks on each job: verdicts_blind.json
    python benchmarks/ranks_gpu/judge.py RESULTS score      # opens measured.json and planted.json, and compares

The first two do not read what was measured on several GPUs, nor what was planted. Files are written into --into, to be
committed before the third. What is said after the third has been read is no more blind: with --seen, other files.
"""

import argparse
import gzip
import json
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from scoring import MEASURED, PLANTED, bandwidths, scalings, verdicts

import tracekit

HERE = Path(__file__).parent
NO_JOBS = ("one", "scaling")
RANKS = (2, 4, 8)
BESIDE = 0.1
"""A collective runs alone, as NCCL was timed, if its ranks compute or copy for less of its transfer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("step", choices=["predict", "verdict", "score"])
    parser.add_argument("--into", type=Path, default=HERE)
    parser.add_argument("--seen", action="store_true", help="the answers are known")
    asked = parser.parse_args()
    files = Files(asked.into, "seen" if asked.seen else "blind")
    {"predict": predict, "verdict": verdict, "score": score}[asked.step](asked.results, files)


@dataclass(frozen=True)
class Files:
    """The files that are written first and compared later."""

    into: Path
    how: str

    def __getitem__(self, name: str) -> Path:
        return self.into / f"{name}_{self.how}.json"


def predict(results: Path, files: Files) -> None:
    predicted = []
    with unpacked(results / "one.tar") as folder:
        for path in sorted(folder.glob("*/rank-0.json.gz")):
            for ranks in RANKS:
                prediction = asdict(tracekit.scaling(path, ranks))
                predicted.append({"workload": path.parent.name, **prediction})
                speedup = prediction["one_us"] / prediction["latency_us"]["expected"]
                print(f"{path.parent.name:18} {ranks} ranks: {speedup:.3f}")
    write(files["predicted"], predicted)


def verdict(results: Path, files: Files) -> None:
    said: dict[str, Any] = {}
    for archive in sorted(each for each in results.glob("*.tar") if each.stem not in NO_JOBS):
        with unpacked(archive) as folder:
            for path in sorted(each for each in folder.iterdir() if each.is_dir()):
                said[path.name] = _verdict(path)
    write(files["verdicts"], said)


def _verdict(folder: Path) -> dict[str, Any]:
    job = tracekit.ranks(folder)
    named = [
        {"rank": each.rank, "cause": each.reason.cause, "op": each.reason.op, "cost": each.cost_share.expected}
        for each in job.stragglers
    ]
    print(
        f"{folder.name:10} {job.steps} steps of {job.step_ns / 1e6:.2f} ms, clocks ±{job.clock_error_ns / 1e3:.1f} µs"
    )
    print("           " + "; ".join(f"rank {each['rank']}: {each['cause']} {each['cost']:.1%}" for each in named))
    rates = job.collectives[job.collectives["bus_bandwidth"].notna()]
    alone = rates["overlap"] < BESIDE
    return {
        "named": named,
        "step_ms": job.step_ns / 1e6,
        "clock_error_us": job.clock_error_ns / 1e3,
        "simulated_share": job.simulated_share,
        "problems": job.problems["code"].tolist(),
        "groups": job.groups["parallelism"].tolist(),
        "bus_gbs": _median_gbs(rates[alone]),
        "beside_gbs": _median_gbs(rates[~alone]),
    }


def _median_gbs(rates: pd.DataFrame) -> list[list[Any]]:
    """Return kind, bytes, median rate on the bus and number of calls."""
    by = rates.groupby(["kind", "bytes"], observed=True)["bus_bandwidth"].agg(["median", "size"]).reset_index()
    return [[row.kind, int(row.bytes), row.median / 1e9, int(row.size)] for row in by.itertuples(index=False)]


def score(results: Path, files: Files) -> None:
    """Copy what was planted and measured beside what was said, and compare."""
    for name in (PLANTED, *MEASURED):
        if (results / name).exists():
            shutil.copyfile(results / name, files.into / name)
    for row in verdicts(files.into, files.how):
        said, right = row["said"] or "nothing", "right" if row["right"] else "WRONG"
        print(f"{row['job']:10} planted {row['planted'] or 'nothing'}, said {said}: {right}")
    for row in scalings(files.into, files.how):
        off = f"{row['predicted'] / row['measured'] - 1:+.1%}"
        kept = f"kept {row['measured']:.3f}, predicted {row['predicted']:.3f} [{row['low']:.2f}-{row['high']:.2f}]"
        print(f"{row['workload']:18} {row['ranks']} GPUs: {kept}, {off}; one GPU {row['one_ms']:.2f} ms")
    for row in bandwidths(files.into, files.how):
        beside = f"{row['traced']:7.1f} GB/s, NCCL {row['nccl']:7.1f}, {row['traced'] / row['nccl'] - 1:+.1%}"
        print(f"{row['job']:10} {row['kind']:14} {row['bytes']:>12,} B: {beside} ({row['calls']})")


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """A folder with the traces of an archive, as .json.gz."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as opened:
        for member in opened:
            data = opened.extractfile(member)
            if data is None or ".." in member.name or not member.name.endswith(".json.xz"):
                continue
            target = Path(folder) / f"{member.name.removesuffix('.xz')}.gz"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(gzip.compress(lzma.decompress(data.read()), 6, mtime=0))
        yield Path(folder)


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
