"""Chapter on jobs of several GPUs: planted faults that `tracekit ranks` names, scaling, and bandwidths."""

from pathlib import Path

from ranks_gpu.scoring import Row, bandwidths, scalings, verdicts

from tracekit.reports.numbers import ABSENT, percent

_DATA = Path(__file__).parents[1] / "ranks_gpu"
_ROUNDS = {
    "h200-x2": "first, 2 H200",
    "h200-x4": "second, 4 H200",
    "h200-x2-third": "third, 2 H200",
    "h200-x2-fourth": "fourth, 2 H200",
}
_NO_TEST = {("h200-x2", "gpt2"), ("h200-x4", "gpt2")}
"""Machines and models whose run on one GPU was another training (its weights were bf16)."""
_LEAST_BYTES = 16 << 20
_INTRO = """## Several GPUs

Jobs of `benchmarks/ranks_gpu/record.py` (torch 2.11, NCCL 2.28.9): DDP, FSDP and tensor-parallel inference, healthy and
with faults drawn at random: ten more matrix products in each forward of a rank, or a loader that sleeps for 40 ms.
*Blind*: what `tracekit ranks` said was committed before what was planted was read. *Seen*: what it says with the rules
that were made afterwards. How ranks are named: [ranks](ranks.md#waits-and-causes)."""
_SCALING = """### Scaling

Throughput of a GPU beside that of one alone, by medians of steps without a profiler. *Blind* was predicted from the
trace of one GPU before the others were read, *today* with the rules that were made afterwards."""
_BANDWIDTH = """### Bandwidth

Median rates on the bus by the traces, in messages of 16 MiB and more, beside NCCL timed by CUDA events (the formula
of nccl-tests), at that size or between its sizes. *Sweep*: single calls. *Less*: by how much a call takes less in
the trace. For single calls of up to 256 MiB that is a few microseconds, whatever their size: ten calls were timed
from an event that the idle GPU passed before the host had made the first one. The recorder has since put the event
behind calls under way; so timed, nothing was measured yet. Calls *beside computation* (a tenth of their time or
more, waiting for other ranks included, where that was looked at) share multiprocessors and memory with it, and NCCL
was timed alone. Where NCCL's own timing was disturbed, it is far below (40 GB/s)."""


def chapter() -> str:
    rounds = {name: _DATA / name for name in _ROUNDS if (_DATA / name).is_dir()}
    named = "\n".join(["| round | job | planted | blind | seen |\n|---|---|---|---|---|", *_named(rounds)])
    scaled = "\n".join(
        ["| round | training | GPUs | measured | blind | today |\n|---|---|---|---|---|---|", *_scaled(rounds)]
    )
    rates = "\n".join(
        [
            "| round | job | collective | MB | trace | NCCL | difference | less |\n|---|---|---|---|---|---|---|---|",
            *_rates(rounds),
        ]
    )
    return "\n\n".join([_INTRO, _counts(rounds), named, _SCALING, scaled, _BANDWIDTH, rates])


def _counts(rounds: dict[str, Path]) -> str:
    """Return the sentence with the numbers of right verdicts."""
    said = []
    for name, folder in rounds.items():
        told = {how: verdicts(folder, how) for how in ("blind", "seen") if _there(folder, "verdicts", how)}
        right = [f"{sum(row['right'] for row in rows)} of {len(rows)} {how}" for how, rows in told.items()]
        said.append(f"{_ROUNDS[name]}: {', '.join(right)}")
    return f"Right: {'; '.join(said)}."


def _named(rounds: dict[str, Path]) -> list[str]:
    lines = []
    for name, folder in rounds.items():
        seen = {row["job"]: row for row in verdicts(folder, "seen")} if _there(folder, "verdicts", "seen") else {}
        for row in verdicts(folder, "blind"):
            planted = "; ".join(f"rank {rank}: {cause}" for rank, cause in row["planted"]) or "nothing"
            now = _verdict(seen[row["job"]]) if row["job"] in seen else ABSENT
            lines.append(f"| {_ROUNDS[name]} | {row['job']} | {planted} | {_verdict(row)} | {now} |")
    return lines


def _verdict(row: Row) -> str:
    said = [
        f"rank {rank}: {cause}, {percent(cost)}" for (rank, cause), cost in zip(row["said"], row["costs"], strict=True)
    ]
    return f"{'right' if row['right'] else '**wrong**'} ({'; '.join(said) or 'nothing'})"


def _scaled(rounds: dict[str, Path]) -> list[str]:
    lines = []
    for name, folder in rounds.items():
        today = {
            (row["workload"], row["ranks"]): _predicted(row)
            for row in (scalings(folder, "seen") if _there(folder, "predicted", "seen") else [])
        }
        for row in scalings(folder, "blind"):
            if (name, row["workload"].split("-")[0]) not in _NO_TEST:
                now = today.get((row["workload"], row["ranks"]), ABSENT)
                cells = (row["workload"], row["ranks"], f"{row['measured']:.2f}", _predicted(row), now)
                lines.append(f"| {_ROUNDS[name]} | {' | '.join(map(str, cells))} |")
    return lines


def _predicted(row: Row) -> str:
    return f"{row['predicted']:.2f} [{row['low']:.2f}–{row['high']:.2f}], {_off(row['predicted'], row['measured'])}"


def _off(said: float, true: float) -> str:
    return f"{round(100 * (said / true - 1)):+d} %"


def _rates(rounds: dict[str, Path]) -> list[str]:
    """Return lines for the sweep and for the first job of each kind."""
    lines = []
    for name, folder in rounds.items():
        rows = [row for row in bandwidths(folder, "seen") if row["bytes"] >= _LEAST_BYTES]
        for row in (each for each in rows if each["job"] == "sweep" or each["job"].endswith("-a")):
            off = "beside computation" if row["beside"] else _off(row["traced"], row["nccl"])
            rates = f"{row['traced']:.0f} GB/s | {row['nccl']:.0f} | {off} | {row['less_us']:.0f} µs"
            lines.append(f"| {_ROUNDS[name]} | {row['job']} | {row['kind']} | {row['bytes'] / 1e6:,.0f} | {rates} |")
    return lines


def _there(folder: Path, file: str, how: str) -> bool:
    return (folder / f"{file}_{how}.json").exists()
