"""Writes docs/published.md: what tutorials publish for two models, beside what tracekit models and what it measured.

Published numbers are those of examples/studies/published.py, modelled ones are rows of data/published.csv, measured
ones those of the benches."""

import csv
import runpy
from pathlib import Path

from benchmarks import percent, table

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_ROWS = _ROOT / "benchmarks" / "data" / "published.csv"
_STUDY = runpy.run_path(str(_ROOT / "examples" / "studies" / "published.py"))
_RUNS = {
    ("T4", "gpt2"): "t4: gpt2 decode, fp32, batch 1, 60 tokens",
    ("A100", "gpt2"): "a100-80gb-sxm: gpt2 decode, fp32, batch 1, 60 tokens",
    ("A100", "mistral-7b"): "a100-80gb-sxm: mistral-7b decode, fp16, batch 1, 60 tokens",
}
_STUDIES = {"gpt2": "GPT-2, decode, batch 1, 100 tokens, over fp32"}
_STUDIES |= {"mistral-7b": "Mistral-7B, decode, batch 1, 100 tokens, over fp16"}
_NAMES = {"gpt2": "GPT-2", "mistral-7b": "Mistral-7B"}
_APPLY = {
    "fp16": "half-precision:fp16",
    "compile": "compile",
    "fp16+compile": "half-precision:fp16+compile",
    "llm-int8": "llm-int8",
    "fp16+flash": "sdpa:flash-attention-2",
    "nf4": "nf4",
}
_WHY = {
    (
        "T4",
        "gpt2",
        "fp32",
    ): "the T4's host is unknown, so the interval covers the range of hosts; the H200's is several times as fast",
    ("T4", "gpt2", "fp16"): "the step is host-bound; on the H200, casts add launches, and faster kernels saved nothing",
    ("T4", "gpt2", "compile"): "compiling removes host time, and on the H200 more of a step is host time",
    ("T4", "gpt2", "fp16+compile"): "published, fp16 shortens the compiled step by 4.2 ms, of "
    "which kernels can give 1.1 (modelled 2.6 to 1.5 ms). The rest is host time, which the type does not change: "
    "another session, or graphs for parts of the step. Graphs for all of it are predicted at 6.5× (3.7 to 10.9)",
    ("A100", "gpt2", "fp32"): "the host",
    ("A100", "gpt2", "fp16"): "as on the T4",
    ("A100", "gpt2", "llm-int8"): "since 2025, bitsandbytes' GEMMs are PyTorch operators, whose Python code takes more "
    "host time",
    ("A100", "mistral-7b", "fp16"): "the host; the weights alone take 7 ms on an A100",
    ("A100", "mistral-7b", "nf4"): "within the interval",
    ("A100", "mistral-7b", "fp16+flash"): "published, FlashAttention 2 makes the step 11.6 ms longer, 0.36 ms "
    "for each layer: transformers then unpadded keys and values there, with two synchronizations; version 5 does not",
}
_HEAD = """# Published numbers and tracekit's

Written by `python -m benchmarks accuracy.published_page`; do not edit. Numbers that tutorials and studies publish for
GPT-2 and Mistral-7B, beside tracekit's model of the same GPU and measurements on an H200 with current software. Batch
1, one token per step, about 100 tokens in the cache. *Published* was measured by others; *MODELLED* is what tracekit
predicts for that GPU without running there ([accuracy](accuracy.md#published-speed-ups)); *measured* was measured by
tracekit ([results](results.md#studies)). Speed-ups are relative to the first row of the same GPU and model."""
_BELOW = """Both views are right about different things. Synchronizing after each module exposes the latency of its
launches, and charges it the host's time: a norm, of one short kernel, takes 13 % of the blocks instead of 3 %, and the
LM head, of one long kernel, 6 % of the pass instead of 24 %. The kernels' fractions are what faster kernels can save.
In current transformers, GPT-2's GELU is eight kernels, which makes the MLP's fraction larger. `tracekit profile
--synchronize modules` measures both views of your model ([capture](capture.md#modules-timed-between-synchronizations)).

## What is not comparable

- A speed-up depends on the host as much as on the GPU: in a host-bound step, the same change gives 0.9× on one machine
  and 1.04× on another. tracekit's intervals cover the range of hosts measured with a GPU; `tracekit calibrate` replaces
  that range with your host.
- Published perplexities are of trained weights; the runs here have random weights and are of speed only. A study
  [trains weights](bench.md#quality).
- Versions: tracekit's numbers are from torch 2.11 and transformers 5.17, the publications' from versions of 2023 to
  2025."""


def text() -> str:
    return "\n\n".join([_HEAD, "## Speed", _speed(), "## Time of a forward pass of GPT-2", _shares(), _BELOW]) + "\n"


def _speed() -> str:
    head = ["run", "published", "MODELLED for that GPU", "measured on an H200", "why they differ"]
    lines = []
    for (gpu, model, config), why in _WHY.items():
        rate, first = _STUDY[gpu][model, config], _first(gpu, model)
        measured, run = _of_study(_STUDIES[model], config), _RUNS[gpu, model]
        if config == first:
            modelled = _interval(_modelled("step ms", run), "")
            cells = [f"{1e3 / rate:.1f} ms", f"{modelled} ms", measured["step"]]
        else:
            modelled = _interval(_modelled("speed-up", run, _APPLY[config]), "×")
            cells = [f"{rate / _STUDY[gpu][model, first]:.2f}×", modelled, measured["measured"]]
        lines.append([f"{_NAMES[model]}, {gpu}, {config}", *cells, why])
    return table(head, lines, 0)


def _shares() -> str:
    head = ["part", "fraction of", "published, T4, synchronized after each module", "MODELLED, T4, likewise"]
    head += ["MODELLED, T4, kernels", "measured, H200, kernels", "measured, H200, host"]
    lines = []
    for of, shares in (("forward", _STUDY["T4_FORWARD"]), ("blocks", _STUDY["T4_BLOCK"])):
        for part, share in shares.items():
            row = _modelled("part", part, of)
            others = (f"{row[name]} %" for name in ("modelled", "kernels", "h200_kernels", "h200_host"))
            lines.append([part, of, percent(share, 1), *others])
    return table(head, lines, 5)


def _first(gpu: str, model: str) -> str:
    return next(config for name, config in _STUDY[gpu] if name == model)


def rows() -> list[dict[str, str]]:
    """Return what was published about speed-ups and steps, with what was modelled when it was last compared."""
    with _ROWS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _modelled(kind: str, run: str, apply: str = "") -> dict[str, str]:
    return next(row for row in rows() if (row["kind"], row["run"], row["apply"]) == (kind, run, apply))


def _interval(row: dict[str, str], unit: str) -> str:
    return f"{row['modelled']}{unit} ({row['low']} to {row['high']})"


def _of_study(title: str, first: str) -> dict[str, str]:
    """Return the row that begins with `first` of the table below a title of results.md, by the table's head."""
    page = (_DOCS / "results.md").read_text(encoding="utf-8")
    head, *lines = _rows(page.partition(f"### {title}\n")[2].partition("\n### ")[0])
    return dict(zip(head, next(row for row in lines if row[0] == first), strict=True))


def _rows(page: str) -> list[list[str]]:
    found = (line.strip("|") for line in page.splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.split("|")] for line in found]


if __name__ == "__main__":
    (_DOCS / "published.md").write_text(text(), encoding="utf-8")
