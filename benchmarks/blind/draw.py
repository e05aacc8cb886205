"""Draws the plan of a blind round: models, workloads, shapes and optimizations, by a seed.

    python -m benchmarks blind.draw SEED -o PLAN [--held-out ROUND] [--rows 42] [--compiles 14]

The same seed and the same list give the same plan. Kinds of models take turns, each workload and each optimization is
drawn as often as the others as far as it fits the models. Compiled rows are limited: each takes ten to sixty seconds.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.blind.models import Model, models
from benchmarks.blind.plan import Plan, Run, write

TURNS = ("dense", "moe", "encoder", "vision", "dense", "audio", "encoder-decoder", "state-space", "dense", "diffusion")
"""Kinds of models in the order in which they are drawn, repeatedly. Decoders are the most frequent."""
PER_RUN = 3
_TOKENS = {"prefill": 4096, "train": 2048, "decode": 16_384}
"""Tokens of a step at most (of a decode step: in its cache); twice as many in a larger batch."""
_LENGTHS = (32, 64, 128, 256, 512, 1024, 2048)
_BATCHES = (1, 1, 2, 4, 8, 16, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--held-out", type=int, default=0, metavar="ROUND", help="draw only models held out for it")
    parser.add_argument("--rows", type=int, default=42)
    parser.add_argument("--compiles", type=int, default=14, help="compiled rows at most")
    asked = parser.parse_args()
    plan = drawn(asked.seed, asked.held_out, asked.rows, asked.compiles)
    write(plan, asked.output)
    print(f"{len(plan.runs)} runs, {plan.rows} rows: {asked.output}")


def drawn(seed: int, held_out: int = 0, rows: int = 42, compiles: int = 14) -> Plan:
    chance, used = random.Random(seed), Counter[str]()
    runs: list[Run] = []
    turns = _turns([model for model in models().values() if model.held_out == held_out], chance)
    while sum(len(run.optimizations) for run in runs) < rows:
        left = compiles - sum(is_compiled(name) for run in runs for name in run.optimizations)
        runs.append(_run(f"r{len(runs) + 1:02}", next(turns), left, used, chance))
    return Plan(seed, held_out > 0, tuple(runs))


def is_compiled(optimization: str) -> bool:
    return "compile" in optimization.split("+")


def _turns(pool: list[Model], chance: random.Random) -> Iterator[Model]:
    """Yield models of alternating kinds; each is drawn once before any is drawn again."""
    decks: dict[str, list[Model]] = {}
    while True:
        for kind in TURNS:
            if not decks.get(kind):
                decks[kind] = [model for model in pool if model.kind == kind]
                chance.shuffle(decks[kind])
            if decks[kind]:
                yield decks[kind].pop()


def _run(name: str, model: Model, compiles: int, used: Counter[str], chance: random.Random) -> Run:
    workload = _rarest(model.workloads, used, chance)[0]
    dtype = "fp32" if workload == "train" else chance.choice(("bf16", "bf16", "fp16", "fp32"))
    attention = chance.choice(("sdpa", "sdpa", "eager")) if model.sdpa and model.kind != "diffusion" else ""
    length, batch = _shape(model, workload, chance)
    run = Run(name, model.name, workload, batch, length, dtype, attention, ())
    return Run(**{**vars(run), "optimizations": _optimizations(run, model, compiles, used, chance)})


def _shape(model: Model, workload: str, chance: random.Random) -> tuple[int, int]:
    """Return the length and the batch size."""
    if not model.has_length:
        return 0, chance.choice(_BATCHES)
    length = chance.choice([each for each in _LENGTHS if each <= model.longest])
    return length, chance.choice([each for each in _BATCHES if each * length <= _TOKENS[workload]])


def _optimizations(run: Run, model: Model, compiles: int, used: Counter[str], chance: random.Random) -> tuple[str, ...]:
    """Draw the optimizations drawn least so far. At most two of them compile; one for deep models and training."""
    can = min(compiles, 1 if model.depth > 16 or run.workload == "train" else 2)
    chosen: list[str] = []
    for name in _rarest(_eligible(run, model), used, chance, count=len(_eligible(run, model))):
        if len(chosen) < PER_RUN and (not is_compiled(name) or can):
            can -= is_compiled(name)
            used[name] += 1
            chosen.append(name)
    larger = chance.choice(_larger_batches(run))
    return tuple(f"{name}:{larger}" if name == "batching" else name for name in chosen)


def _larger_batches(run: Run) -> list[int]:
    tokens, most = max(1, run.length), 2 * _TOKENS[run.workload]
    return [batch for batch in (2 * run.batch, 4 * run.batch, 8 * run.batch) if batch * tokens <= most]


def _eligible(run: Run, model: Model) -> list[str]:
    if run.workload == "train":
        checkpointed = [] if model.kind == "diffusion" or model.name == "resnet-50" else ["gradient-checkpointing"]
        return ["compile", "fused-optimizer", *checkpointed, "batching"]
    names = ["compile", "batching"]
    if run.workload != "decode" or model.static_cache:
        names += ["cuda-graphs", "compile+cuda-graphs"]
    if run.dtype == "fp32":
        names += ["half-precision:bf16", "half-precision:bf16+compile"]
    if run.attention == "eager":
        names += ["sdpa", "sdpa+compile"]
    if run.workload == "decode" and model.kind in ("dense", "moe") and model.static_cache:
        names += ["static-cache", "static-cache+compile"]
    return names


def _rarest(names: list[str] | tuple[str, ...], used: Counter[str], chance: random.Random, count: int = 1) -> list[str]:
    """Return the names by the number of uses so far; equally used ones are in random order."""
    order = sorted(names, key=lambda name: (used[name], chance.random()))[:count]
    if count == 1:
        used[order[0]] += 1
    return order


if __name__ == "__main__":
    main()
