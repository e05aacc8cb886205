"""Results of `tracekit verify`: every optimization on three models, for each workload that it applies to."""

import gzip
import json
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from benchmarks import table
from tracekit.advise import OPTIMIZATIONS
from tracekit.analyzers.results import Verification, Verified
from tracekit.reports.answer.measured import from_to, why_not
from tracekit.reports.words import ABSENT, duration, measured, model, quantity, speedup

_FILE = Path(__file__).parents[1] / "data" / "h200_verify.json.gz"
_MODELS = ("gpt2", "llama-1b", "mistral-7b")
_WORKLOADS = {
    "decode": "Decode of one token after 512, batch 1",
    "train": "A step of training, batch 1, 512 tokens",
    "prefill-eager": "Prefill of 512 tokens, batch 1, unfused attention",
    "prefill": "Prefill of 512 tokens in fp32, batch 1",
}
"""Result files of each model, by workload."""
_CHECK = " ²"
_CHECK_NOTE = "² Speculative decoding: the verification of four drafted tokens."

Cell = Callable[[Verification, Verified], tuple[str, str]]


def chapter() -> str:
    runs = {workload: _of_models(workload) for workload in _WORKLOADS}
    every = [run for group in runs.values() for run in group]
    return "\n\n".join(
        [
            "## Verify: every optimization on three models",
            _filled(f"By `tracekit verify`. {_inside(every)}"),
            *[_workload(_WORKLOADS[name], group) for name, group in runs.items()],
            _filled(_CHECK_NOTE),
            _filled(_warned(runs["decode"][0])),
        ]
    )


def _of_models(workload: str) -> list[Verification]:
    runs = json.loads(gzip.decompress(_FILE.read_bytes()))
    names = (f"{name}-{workload}" for name in _MODELS)
    return [msgspec.convert(runs[name], Verification) for name in names if name in runs]


def _workload(title: str, runs: Sequence[Verification]) -> str:
    refused = _not_applied(runs)
    parts = [f"### {title}", _across(runs, _gain)]
    return "\n\n".join([*parts, f"Not applied:\n\n{refused}"] if refused else parts)


def _inside(runs: Iterable[Verification]) -> str:
    judged = [each.inside for run in runs for each in run.results if each.inside is not None]
    return f"{sum(judged)} of the {len(judged)} speed-ups in this chapter lie in their intervals."


def _warned(run: Verification) -> str:
    """Return the sentence about an optimization that was predicted to lose, and did."""
    (int8,) = (each for each in run.results if each.id == "llm-int8")
    assert int8.predicted and int8.measured and int8.before and int8.after
    size = from_to(run.peak_memory_bytes, int8.peak_memory_bytes, lambda number: quantity(number, "B"))
    return (
        "**A loss that was predicted:** LLM.int8 on GPT-2 was predicted at "
        f"{speedup(int8.predicted)} of the speed and measured at {measured(int8.measured)}: "
        f"{from_to(int8.before.median_us, int8.after.median_us, duration)} per token. It saves memory: {size}."
    )


def _across(runs: Sequence[Verification], cell: Cell) -> str:
    """Return a table with a row per optimization, and two columns per run: predicted and measured."""
    rows: dict[str, list[str]] = defaultdict(lambda: [ABSENT] * (2 * len(runs)))
    for place, run in enumerate(runs):
        for result in run.results:
            if result.measured:
                rows[result.id][2 * place : 2 * place + 2] = cell(run, result)
    head = [text for run in runs for text in (f"{_short(run)}: predicted", "measured")]
    ordered = sorted(rows, key=_rank)
    return table(["optimization", *head], ([name, *rows[name]] for name in ordered), len(head))


def _rank(name: str) -> tuple[int, int]:
    """Order single optimizations as in the registry, before combinations."""
    parts = name.split("+")
    return len(parts), [each.id for each in OPTIMIZATIONS].index(parts[0].partition(":")[0])


def _gain(_: Verification, result: Verified) -> tuple[str, str]:
    assert result.measured
    mark = _CHECK if _of_a_check(result) else ""
    return speedup(result.predicted) if result.predicted else ABSENT, measured(result.measured) + mark


def _of_a_check(result: Verified) -> bool:
    return result.id.startswith("speculative-decoding")


def _not_applied(runs: Sequence[Verification]) -> str:
    """Return each reason once, with the optimizations and models that it applies to."""
    said: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for result in run.results:
            if result.error:
                said[why_not(result)][result.id].append(model(run.settings["name"]))
    return "\n".join(f"- {_what(names, len(runs))}: {why}" for why, names in said.items())


def _what(names: dict[str, list[str]], runs: int) -> str:
    where = next(iter(names.values()))
    return ", ".join(sorted(names, key=_rank)) + ("" if len(where) == runs else f" ({', '.join(where)})")


def _filled(text: str) -> str:
    return textwrap.fill(text, 120)


def _short(run: Verification) -> str:
    return f"{model(run.settings['name'])}, {run.settings['dtype']}"
