"""Chapter on jobs of several GPUs: planted faults that `tracekit ranks` names, scaling, and bandwidths."""

from pathlib import Path

from ranks_gpu.scoring import Row, bandwidths, scalings, verdicts

from tracekit.reports.words import ABSENT, percent

_DATA = Path(__file__).parents[1] / "ranks_gpu"
_ROUNDS = {
    "h200-x2": "first, 2 H200",
    "h200-x4": "second, 4 H200",
    "h200-x2-third": "third, 2 H200",
    "h200-x2-fourth": "fourth, 2 H200",
    "h200-x2-fifth": "fifth, 2 H200",
    "h200-x2-sixth": "sixth, 2 H200",
}
_NO_TEST = {("h200-x2", "gpt2"), ("h200-x4", "gpt2")}
"""Machines and models whose run on one GPU was another training (its weights were bf16)."""
_LEAST_BYTES = 16 << 20
_INTRO = """## Several GPUs

Jobs of `benchmarks/ranks_gpu/record.py` (torch 2.11, NCCL 2.28.9): DDP, FSDP and tensor-parallel inference, healthy and
with faults drawn at random: ten additional GEMMs in each forward pass of a rank, a loader that sleeps for 40 ms, or a
second process that keeps the GPU busy. *Blind*: the diagnosis by `tracekit ranks`, committed before the planted faults
were revealed. *Seen*: the diagnosis with today's rules, which were changed afterwards.
[Ranks](ranks.md#waits-and-causes) describes how ranks are named."""
_SCALING = """### Scaling

Throughput per GPU relative to that of a single GPU, by medians of steps without a profiler. *Blind* was predicted from
the trace of one GPU before the results of the others were revealed, *today* with the rules that were changed
afterwards. In the first two rounds, one GPU and several were timed in different runs; in the third to the fifth in two
turns of ten steps; in the sixth in five turns of three, with each rank bound to its cores, and its traces include the
latency of a step of one GPU without a profiler. Sixth: the device-bound *encoder* (BERT base, 64×256), *long* (GPT-2
with six layers, 8×1024) and *large* (GPT-2 large, 4×1024), and the host-bound *short* (GPT-2 medium, 2×256)."""
_BANDWIDTH = """### Bandwidth

Median bus bandwidths from the traces, for calls of at least 16 MiB, beside those of NCCL timed by CUDA events (with the
formula of nccl-tests), at that size or interpolated. Smaller calls are not compared: a trace contains the time of the
kernel, CUDA events the time from one call to the next. *Sweep*: single calls. This table contains calls whose ranks
compute or copy for less than a tenth of the transfer, because NCCL was timed alone. In the first four rounds, the
events began before the host had made the first call, so NCCL's rates are up to 15 % too low, mostly for small calls; in
the fifth, they begin while earlier calls still run. Rates far below the others (40 GB/s) are due to disturbed timings
of NCCL."""
_BESIDE = """### Bandwidth beside other work

The other calls share multiprocessors and memory with kernels that run at the same time, so the differences are not
errors of the trace. Buckets of 34 MB of GPT-2 medium reach 90 GB/s beside pointwise kernels (GELU's backward pass and
casts, which are memory-bound), and 185 beside GEMMs and the backward passes of norms. Those of GPT-2 small, whose GPU
is mostly idle, reach the rate of NCCL alone. All have the same launch configuration (24 blocks). DDP's last bucket
overlaps with the copies out of the earlier buckets: if these take three quarters of its time, it is 12 % slower than
NCCL, if a fifth, 2 %."""
_RATES = "| round | job | collective | MB | calls | trace | NCCL | difference |\n|---|---|---|---|---|---|---|---|"


def chapter() -> str:
    rounds = {name: _DATA / name for name in _ROUNDS if (_DATA / name).is_dir()}
    named = "\n".join(["| round | job | planted | blind | seen |\n|---|---|---|---|---|", *_named(rounds)])
    scaled = "\n".join(
        ["| round | training | GPUs | measured | blind | today |\n|---|---|---|---|---|---|", *_scaled(rounds)]
    )
    alone, beside = ("\n".join([_RATES, *_rates(rounds, beside)]) for beside in (False, True))
    return "\n\n".join([_INTRO, _counts(rounds), named, _SCALING, scaled, _BANDWIDTH, alone, _BESIDE, beside])


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


def _rates(rounds: dict[str, Path], beside: bool) -> list[str]:
    """Return rows for the sweep and a healthy job of each kind: calls alone, or calls that overlap with other work."""
    lines = []
    for name, folder in rounds.items():
        rows = [row for row in bandwidths(folder, "seen") if row["bytes"] >= _LEAST_BYTES and row["beside"] == beside]
        healthy = {row["job"].split("-")[0]: row["job"] for row in verdicts(folder, "seen") if not row["planted"]}
        for row in (each for each in rows if each["job"] in ("sweep", *healthy.values())):
            size = f"{row['bytes'] / 1e6:,.0f} | {row['calls']}"
            rates = f"{row['traced']:.0f} GB/s | {row['nccl']:.0f} | {_off(row['traced'], row['nccl'])}"
            lines.append(f"| {_ROUNDS[name]} | {row['job']} | {row['kind']} | {size} | {rates} |")
    return lines


def _there(folder: Path, file: str, how: str) -> bool:
    return (folder / f"{file}_{how}.json").exists()
