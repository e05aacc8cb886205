"""Times reading and analyzing one trace: tracekit, its peers if they are installed, and a bare scan.

python -m benchmarks performance.reading /tmp/big.json [--runs 3] [--peers PEERS_PYTHON]

Every way is a separate process; runs take turns, and the quickest of each counts. `--peers` is the Python of an
environment with traceinsight, torch-tb-profiler, orjson and pandas (traceinsight and current pandas need one of their
own). Peak memory is that of the largest process.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click

_SCAN = """
import sys
from isal import igzip
path = sys.argv[1]
with (igzip.open if path.endswith(".gz") else open)(path, "rb") as file:
    while block := file.read(1 << 22):
        block.count(b"\\n"), block.count(b"{"), block.count(b"}")
"""
_TRACEINSIGHT = """
import sys
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/", include_last_profiler_step=True)
assert len(trace.get_temporal_breakdown(visualize=False))
"""
_TB_PROFILER = """
import sys
from torch_tb_profiler.profiler.data import RunProfileData
assert RunProfileData.parse("worker", None, sys.argv[1], None)
"""
_ORJSON = """
import gzip, sys
import orjson, pandas
path = sys.argv[1]
with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
    assert len(pandas.DataFrame(orjson.loads(file.read())["traceEvents"]))
"""


class Way(NamedTuple):
    name: str
    command: list[str]
    environment: dict[str, str]


class Run(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_mb: float
    failed: str


def ways(trace: str, peers: str, folder: Path) -> list[Way]:
    def ours(*words: str) -> list[str]:
        return [sys.executable, "-m", "tracekit", *words]

    cache = {"XDG_CACHE_HOME": str(folder)}
    page = ["-o", str(folder / "report.html")]
    return [
        Way("tracekit analyze", ours("analyze", "--no-cache", trace), {}),
        Way("tracekit analyze -o report.html", ours("analyze", "--no-cache", trace, *page), {}),
        Way("tracekit analyze, from the cache", ours("analyze", trace), cache),
        Way("bare scan (read, inflate, find braces)", [sys.executable, "-c", _SCAN, trace], {}),
        Way("orjson + pandas, to a table", [peers, "-c", _ORJSON, trace], {}),
        Way("traceinsight, temporal breakdown", [peers, "-c", _TRACEINSIGHT, trace], {"HTA_DISABLE_NS_ROUNDING": "1"}),
        Way("torch-tb-profiler, data of its views", [peers, "-c", _TB_PROFILER, trace], {}),
    ]


def run(way: Way) -> Run:
    start = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(way.command, env=os.environ | way.environment, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
    wall = time.perf_counter() - start
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3, last if process.returncode else "")


@click.command()
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@click.option("--runs", default=3, show_default=True)
@click.option("--peers", default=sys.executable, help="A Python that has the peers.  [default: this one]")
def main(trace: str, runs: int, peers: str) -> None:
    """Print a table of the ways to read TRACE, as multiples of the first."""
    with tempfile.TemporaryDirectory() as folder:
        timed: dict[str, list[Run]] = {}
        for turn in range(runs + 1):  # the first warms up, and fills the cache
            for way in ways(trace, peers, Path(folder)):
                if not any(each.failed for each in timed.get(way.name, [])):
                    timed.setdefault(way.name, []).append(run(way))
            if not turn:
                timed = {name: [each for each in those if each.failed] for name, those in timed.items()}
    _print(trace, timed)


def _print(trace: str, timed: dict[str, list[Run]]) -> None:
    click.echo(f"{Path(trace).stat().st_size / 1e6:.0f} MB, {os.cpu_count()} cores\n")
    click.echo("| way | wall s | × | CPU s | peak MB |\n|---|---|---|---|---|")
    first = min(run.wall_s for run in next(iter(timed.values())))
    for name, those in timed.items():
        best = min(those)
        if best.failed:
            click.echo(f"| {name} | skipped: {best.failed[:80]} | | | |")
        else:
            cpu, peak = min(run.cpu_s for run in those), max(run.peak_mb for run in those)
            click.echo(f"| {name} | {best.wall_s:.2f} | {best.wall_s / first:.2f} | {cpu:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
