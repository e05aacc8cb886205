"""Chapter: the effect of weight formats, fine-tuning and a draft model on a small trained model."""

import json
import math
from pathlib import Path
from typing import Any

from tracekit.measure import Row, from_csv
from tracekit.reports.words import ABSENT, duration, percent, quantity, significant, times

_DATA = Path(__file__).parents[1] / "data"
_INTRO = """An earlier program (`git show a5ac3a72:examples/studies/quality/train.py`) trained a model of GPT-2's shape
(12 layers, width 768, {parameters:.0f} M parameters, built by OPT's classes with nn.Linear) on {tokens:,} tokens of
SQLite's documentation until its perplexity on held-out text no longer falls: **{reached:.1f}**, where token frequencies
alone give {unigram:.0f}. The decode step is one token at batch 1 after 256. Perplexity, loss (nats per token) and the
fraction of positions with the same most likely token as fp32 are measured on the held-out text."""
_FORMATS = """At this size a step is host-bound: every format is slower than fp32, and the GPU is busy for 6 to 31 % of
a step. torchao's int8 and fp8 arithmetic add the most host time to a step of one row. The remaining differences are
memory and quality: int4 and NF4 need a quarter of fp32's memory and choose another token at one position in 17 to 20;
LLM.int8 and int8 weights at one in 90 to 110. AWQ was no better than rounding to nearest here. Perplexities of the
4-bit formats are 0.1 to 0.2 % higher."""
_TUNED = """QLoRA trains 3 % of the parameters and reaches a perplexity of {qlora:.1f}; training all weights reaches
{whole:.1f}. Both forget the first text. Most of its {memory} are activations and logits of 16 × 512 tokens, so that it
saves little at this size, and a step takes {slower:.1f} times as long."""
_DRAFTED = """A draft model of {parameters:.1f} M parameters, trained on the same text (perplexity {perplexity:.1f}: the
smaller model overfits less), predicts {agreement:.0%} of the tokens that the model generates. Verifying {drafted}
drafted tokens at a time with transformers' assisted generation gives {rate:.0f} tokens per second instead of
{plain:.0f}, **{speedup:.2f}×**: in a host-bound step, a launch of the draft model costs as much as one of the model."""


def chapter() -> str:
    rows = from_csv(_DATA / "h200_quality.csv")
    told = json.loads((_DATA / "h200_quality.json").read_text(encoding="utf-8"))
    training, tuning, drafting = (told[name] for name in ("training", "finetuning", "speculative"))
    model, draft = training["small-gpt"], training["draft"]
    intro = _INTRO.format(
        parameters=model["parameters"] / 1e6,
        tokens=training["tokens"],
        reached=model["perplexity"],
        unigram=training["unigram_perplexity"],
    )
    runs = {row["run"]: row for row in tuning}
    tuned = _TUNED.format(
        qlora=runs["qlora"]["perplexity"],
        whole=runs["whole"]["perplexity"],
        memory=quantity(runs["qlora"]["peak_bytes"], "B"),
        slower=runs["qlora"]["step_ms"] / runs["whole"]["step_ms"],
    )
    drafted = _DRAFTED.format(
        parameters=draft["parameters"] / 1e6,
        perplexity=draft["perplexity"],
        agreement=drafting["agreement"],
        drafted=drafting["drafted_tokens"],
        rate=drafting["tokens_per_s_with_draft"],
        plain=drafting["tokens_per_s"],
        speedup=drafting["speedup"],
    )
    parts = [
        "## A trained model: quality beside speed and memory",
        intro,
        "### Weight formats",
        _formats(rows),
        "![Speed-up, memory, utilization, and accuracy against speed](images/quality.svg)",
        _FORMATS,
        "### Fine-tuning on a second text (liblzma's documentation, 120 steps of 16 × 512 tokens)",
        _tuning(tuning),
        tuned,
        "### A draft model for speculative decoding",
        drafted,
    ]
    return "\n\n".join(parts)


def _formats(rows: list[Row]) -> str:
    head = ["configuration", "predicted", "measured", "step", "memory", "perplexity", "loss", "same token", "off by"]
    return _table(head, [_format_cells(row) for row in rows])


def _format_cells(row: Row) -> list[str]:
    assert row.latency_us and row.perplexity and row.speedup and row.peak_memory_bytes
    known = row.predicted_low is not None and row.predicted_high is not None
    return [
        row.config,
        f"{row.predicted_low:.2f}–{row.predicted_high:.2f}×" if known else ABSENT,
        times(row.speedup, row.speedup) if row.speedup > 0.05 else f"{row.speedup:.3f}×",
        duration(row.latency_us),
        quantity(row.peak_memory_bytes, "B"),
        f"{row.perplexity:.2f}",
        f"{math.log(row.perplexity):.4f}",
        percent(row.text_agreement) if row.text_agreement is not None else ABSENT,
        f"{significant(100 * row.relative_difference)} %" if row.relative_difference else ABSENT,
    ]


def _tuning(rows: list[dict[str, Any]]) -> str:
    head = ["weights trained", "perplexity, second text", "first text", "step", "tokens/s", "memory"]
    names = {"before": "none", "whole": "all, fp32 with bf16 arithmetic", "qlora": "adapters on NF4 weights (QLoRA)"}
    return _table(head, [[names[row["run"]], *_tuning_cells(row)] for row in rows])


def _tuning_cells(row: dict[str, Any]) -> list[str]:
    reached = [f"{row['perplexity']:.1f}", f"{row['perplexity_of_first_text']:.1f}"]
    if "step_ms" not in row:
        return [*reached, ABSENT, ABSENT, ABSENT]
    cost = [f"{row['step_ms']:.1f} ms", f"{row['tokens_per_s']:,.0f}", quantity(row["peak_bytes"], "B")]
    return [*reached, *cost]


def _table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
