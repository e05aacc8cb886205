"""Chapter on jobs of several GPUs: planted faults that `tracekit ranks` names, scaling, and bandwidths."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from tracekit.reports.words import ABSENT

PLANTED = "planted.json"
MEASURED = ("one.json", "many.json", "measured.json")
"""The first two are those of the first three rounds."""
CAUSES = {"more-work": "more work", "slow-loader": "data loading", "busy-gpu": "slower device"}
Row = dict[str, Any]
Machine = dict[str, Any]
"""The files of one machine, by name."""


@cache
def jobs() -> dict[str, Machine]:
    """Return what was planted, measured and said on each machine."""
    return json.loads(gzip.decompress((Path(__file__).parents[1] / "ranks" / "h200_jobs.json.gz").read_bytes()))


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
_INTRO = """## Several GPUs

Jobs on six machines (torch 2.11, NCCL 2.28.9): DDP, FSDP and tensor-parallel inference, healthy and
with faults drawn at random: ten additional GEMMs in each forward pass of a rank, a loader that sleeps for 40 ms, or a
second process that keeps the GPU busy. *Blind*: the diagnosis by `tracekit ranks`, committed before the planted faults
were revealed. *Seen*: the diagnosis with the rules that were changed for them.
[Ranks](ranks.md#waits-and-causes) describes how ranks are named."""
_TOTALS = (
    "Over all rounds, blind, {faults} faults and {healthy} healthy jobs were judged right, and {scalings} scalings "
    "were predicted within 10 %. {scored} planned jobs were scored: of the other {lost}, {late} were not recorded "
    "because the time on the machine ended; for {rest} no reason was recorded. Their machines are gone, so they "
    "cannot be scored. Of the 99 bandwidths that an earlier page compared with NCCL's, 17 were off by more than 10 %, "
    "most of them beside other work. The traces of one GPU behind the scalings are not committed, so these "
    "predictions cannot be computed again. Jobs of eight GPUs, healthy and with sealed faults, are in "
    "`benchmarks/ranks`; they were run on eight CPU processes, not on eight GPUs."
)
_SCALING = """### Scaling

Throughput per GPU relative to that of a single GPU, by medians of steps without a profiler. *Blind* was predicted from
the trace of one GPU before the results of the others were revealed, *later* with the rules that were changed
afterwards. In the first two rounds, one GPU and several were timed in different runs; in the third to the fifth in two
turns of ten steps; in the sixth in five turns of three, with each rank bound to its cores, and its traces include the
latency of a step of one GPU without a profiler. Sixth: the device-bound *encoder* (BERT base, 64×256), *long* (GPT-2
with six layers, 8×1024) and *large* (GPT-2 large, 4×1024), and the host-bound *short* (GPT-2 medium, 2×256)."""


def chapter() -> str:
    rounds = {name: jobs()[name] for name in _ROUNDS}
    head = "| round | training | GPUs | measured | blind | later |\n|---|---|---|---|---|---|"
    return "\n\n".join([_INTRO, _counts(rounds), _totals(rounds), _SCALING, "\n".join([head, *_scaled(rounds)])])


def totals(rounds: dict[str, Machine]) -> dict[str, tuple[int, int]]:
    """Return over all rounds, of how many: jobs scored; faults and healthy jobs that were judged right, and scalings
    within 10 %, all blind."""
    said = [row for folder in rounds.values() for row in verdicts(folder, "blind")]
    parts = {"faults": [row for row in said if row["planted"]], "healthy": [row for row in said if not row["planted"]]}
    scaled = [row for name in rounds for row in scalings(rounds[name], "blind") if _is_test(name, row)]
    return {
        "scored": (len(said), sum(len(folder[PLANTED]["jobs"]) for folder in rounds.values())),
        **{name: (sum(row["right"] for row in rows), len(rows)) for name, rows in parts.items()},
        "scalings": (sum(abs(row["predicted"] / row["measured"] - 1) <= 0.1 for row in scaled), len(scaled)),
    }


def _totals(rounds: dict[str, Machine]) -> str:
    told = {name: f"{some:,} of {all_of_them:,}" for name, (some, all_of_them) in totals(rounds).items()}
    out_of_time = sum("no time was left" in each for folder in rounds.values() for each in _measured(folder, "errors"))
    scored, planned = totals(rounds)["scored"]
    return _TOTALS.format(**told, lost=planned - scored, late=out_of_time, rest=planned - scored - out_of_time)


def _counts(rounds: dict[str, Machine]) -> str:
    """Return the sentence with the numbers of right verdicts."""
    said = []
    for name, folder in rounds.items():
        told = {how: verdicts(folder, how) for how in ("blind", "seen") if _there(folder, "verdicts", how)}
        right = [f"{sum(row['right'] for row in rows)} of {len(rows)} {how}" for how, rows in told.items()]
        said.append(f"{_ROUNDS[name]}: {', '.join(right)}")
    return f"Right: {'; '.join(said)}."


def _scaled(rounds: dict[str, Machine]) -> list[str]:
    lines = []
    for name, folder in rounds.items():
        today = {
            (row["workload"], row["ranks"]): _predicted(row)
            for row in (scalings(folder, "seen") if _there(folder, "predicted", "seen") else [])
        }
        for row in scalings(folder, "blind"):
            if _is_test(name, row):
                now = today.get((row["workload"], row["ranks"]), ABSENT)
                cells = (row["workload"], row["ranks"], f"{row['measured']:.2f}", _predicted(row), now)
                lines.append(f"| {_ROUNDS[name]} | {' | '.join(map(str, cells))} |")
    return lines


def _is_test(name: str, row: Row) -> bool:
    return (name, row["workload"].split("-")[0]) not in _NO_TEST


def _predicted(row: Row) -> str:
    return f"{row['predicted']:.2f} [{row['low']:.2f}–{row['high']:.2f}], {_off(row['predicted'], row['measured'])}"


def _off(said: float, true: float) -> str:
    return f"{round(100 * (said / true - 1)):+d} %"


def _there(folder: Machine, file: str, how: str) -> bool:
    return f"{file}_{how}.json" in folder


def verdicts(folder: Machine, how: str) -> list[Row]:
    """Return, for each recorded job, what was planted and what was said: (rank, cause), and whether it was right."""
    planted, said = folder[PLANTED]["jobs"], folder[f"verdicts_{how}.json"]
    rows = []
    for job, fault in planted.items():
        if job in said:
            true = [] if fault["fault"] == "healthy" else [(fault["rank"], CAUSES[fault["fault"]])]
            named = [(each["rank"], each["cause"]) for each in said[job]["named"]]
            costs = [each["cost"] for each in said[job]["named"]]
            rows.append({"job": job, "planted": true, "said": named, "costs": costs, "right": named == true})
    return rows


def scalings(folder: Machine, how: str) -> list[Row]:
    """Return the throughput of a GPU that training keeps on several: measured (medians of steps), predicted."""
    times = _measured(folder, "times")
    alone = {row["workload"]: row["median_ms"] for row in times if row["ranks"] == 1}
    together = {(row["workload"], row["ranks"]): row["median_ms"] for row in times if row["ranks"] > 1}
    rows = []
    for each in folder[f"predicted_{how}.json"]:
        name, ranks, took = each["workload"], each["ranks"], each["latency_us"]
        if (name, ranks) in together:
            low, expected, high = (min(1.0, each["one_us"] / took[bound]) for bound in ("high", "expected", "low"))
            true = alone[name] / together[name, ranks]
            rows.append({"workload": name, "ranks": ranks, "measured": true, "predicted": expected})
            rows[-1] |= {"low": low, "high": high, "one_ms": alone[name]}
    return rows


def _measured(folder: Machine, name: str) -> list[Row]:
    return [row for file in MEASURED for row in folder.get(file, {}).get(name, [])]
