"""Measures the time and memory of `tracekit ranks` by the number of ranks.

    python -m benchmarks performance.ranks_scale TRACE --ranks 20 40 --workers 1 2
    python -m benchmarks performance.ranks_scale TRACE --reduce 100 1000

The first reads that many copies (hard links) of a trace of --megabytes, replicated from TRACE, from the page cache and
without tracekit's. The second makes the summary of one such trace once, and reduces that many copies of it.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.performance.replicate import replicate

_SAMPLE_S = 0.1


def measured(command: list[str]) -> tuple[float, float, float]:
    """Return wall seconds, CPU seconds, and the peak memory of the command and its processes in MB."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process, peak = subprocess.Popen(command, stdout=subprocess.DEVNULL), 0.0
    while process.poll() is None:
        peak = max(peak, sum(map(memory_mb, family(process.pid))))
        time.sleep(_SAMPLE_S)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used, peak


def family(number: int) -> list[int]:
    """Return a process and all processes below it."""
    children: list[str] = []
    for task in Path(f"/proc/{number}/task").glob("*/children"):
        with suppress(OSError):
            children += task.read_text().split()
    return [number, *(each for child in children for each in family(int(child)))]


def memory_mb(number: int) -> float:
    """Return the proportional memory, in which shared memory counts once."""
    try:
        text = Path(f"/proc/{number}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in text.splitlines() if line.startswith("Pss:")), 0.0)


def read_ranks(trace: Path, folder: Path, ranks: int, workers: int) -> None:
    place = folder / f"{ranks}-{workers}"
    place.mkdir()
    for rank in range(ranks):
        (place / f"rank-{rank}.json").hardlink_to(trace)
    command = [sys.executable, "-m", "tracekit", "ranks", str(place), "--no-cache", "--workers", str(workers)]
    wall, used, peak = measured([*command, "-o", str(place / "out")])
    print(f"{ranks:6} ranks, {workers} workers: {wall:7.1f} s, {used:7.1f} s of CPU, {peak:6.0f} MB", flush=True)


def reduce_ranks(trace: Path, ranks: int) -> None:
    """In this process, whose own peak is printed."""
    from tracekit.analyzers.ranks import analyze_ranks, summarize
    from tracekit.analyzers.trace import reading
    from tracekit.reports.document import render
    from tracekit.reports.ranks import export, job_document

    one = replace(summarize(reading.load(trace)), groups=())
    copies = [
        replace(one, rank=n, calls=one.calls.copy(), steps=one.steps.copy(), work=one.work.copy()) for n in range(ranks)
    ]
    began = time.perf_counter(), time.process_time()
    job = analyze_ranks(copies, range(ranks))
    written = render(job_document(job), "html"), export.to_json(job)
    wall, used = time.perf_counter() - began[0], time.process_time() - began[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    sizes = f"page {len(written[0]) / 1e6:.1f} MB, JSON {len(written[1]) / 1e6:.1f} MB"
    calls = f"{len(one.calls)} calls and {len(one.steps)} steps a rank"
    print(
        f"reduce {ranks:6} ranks: {wall:6.1f} s, {used:6.1f} s of CPU, peak {peak:5.0f} MB; {sizes}; {calls}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--ranks", type=int, nargs="*", default=[])
    parser.add_argument("--workers", type=int, nargs="*", default=[2])
    parser.add_argument("--reduce", type=int, nargs="*", default=[])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.json"
        events = replicate(asked.trace, large, asked.megabytes)
        print(f"{large.stat().st_size / 1e6:.0f} MB, {events:,} events")
        for ranks in asked.ranks:
            for workers in asked.workers:
                read_ranks(large, Path(folder), ranks, workers)
        for ranks in asked.reduce:
            reduce_ranks(large, ranks)


if __name__ == "__main__":
    main()
