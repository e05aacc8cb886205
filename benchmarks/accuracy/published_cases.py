"""Speed-ups that others published: a run before and after an optimization, in one setting."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

TABLE = "calibration/published_end_to_end.csv"
GRAPHS = "compile+cuda-graphs"


@dataclass(frozen=True)
class Case:
    """`before` and `after` are the published times of a step (or a token) in milliseconds."""

    gpu: str
    """Id in gpus.toml, or name in published_gpus.py."""
    model: str
    workload: str
    batch: int
    seq: int
    dtype: str
    attention: str
    already: str
    """Optimizations that both runs have."""
    apply: str
    before: float
    after: float
    source: str

    @property
    def speedup(self) -> float:
        return self.before / self.after


def cases(shared: Path) -> list[Case]:
    """Return each published pair that differs by one of our optimizations: from the CSV and two tables in text."""
    published = pd.read_csv(shared / TABLE).fillna("")
    groups = published.groupby(["source", "gpu", "model", "task", "batch", "seq"], sort=False)
    speedups = [case for _, rows in groups for case in _of_setting(rows)]
    return [*speedups, *TOKENS_A_SECOND]


def _of_setting(rows: pd.DataFrame) -> Iterator[Case]:
    first = rows.iloc[0]
    template = _templates(first)
    for _, row in rows.iloc[1:].iterrows():
        apply = _APPLIED.get(row["config"])
        if apply:
            yield replace(template, apply=apply, before=_ms(first), after=_ms(row))


def _templates(row: "pd.Series[str]") -> Case:
    decoding = "decode" in row.task
    workload = "train" if "training" in row.task else "decode" if decoding else "prefill"
    token = row.source.startswith("pytorch/ao")
    return Case(
        gpu=_GPUS[row.gpu],
        model=row.model.split("/")[-1].lower(),
        workload=workload,
        batch=int(row.batch),
        seq=0 if "x" in str(row.seq) else int(row.seq or _TORCHAO_TOKENS),
        dtype=row["dtype"],
        attention="sdpa" if token else "eager",
        already=GRAPHS if token else "",
        apply="",
        before=0.0,
        after=0.0,
        source="torchao" if token else "transformers",
    )


def _ms(row: object) -> float:
    value, metric = float(row.value), row.metric  # type: ignore[attr-defined]
    return {"ms": value, "s": 1e3 * value, "tok/s": 1e3 / value}[metric]


_TORCHAO_TOKENS = 100
"""The length is not published. The script generates 200 tokens from a short prompt."""
_GPUS = {
    "A100": "a100-80gb-sxm",
    "V100": "v100-sxm",
    "T4": "t4",
    "A100-80GB": "a100-80gb-sxm",
    "RTX 3080 Ti laptop 16GB": "rtx-3080-ti-laptop",
    "H100 (Meta 2.4 TB/s variant, see roofline_utils.py)": "h100-2.4tb",
}
_APPLIED = {
    "torch.compile default": "compile",
    "sdpa": "sdpa",
    "int8 dynamic": "int8-dynamic",
    "int8 weight-only": "int8-weight-only:fused",
    "int4wo-64": "int4-weight-only",
    "float8 dynamic per-row": "fp8-dynamic",
    "float8 dynamic per-tensor": "fp8-dynamic:per-tensor",
}
"""Configurations without an optimization of ours (fp6, autoquant, float8 weight-only) are left out."""


def _tokens(gpu: str, model: str, dtype: str, apply: str, before: float, after: float) -> Case:
    """Return a case from tokens per second: 100 new tokens at batch 1, represented by the 50th."""
    return Case(gpu, model, "decode", 1, 60, dtype, "sdpa", "", apply, 1e3 / before, 1e3 / after, "tokens a second")


TOKENS_A_SECOND = (
    _tokens("t4", "gpt2", "fp32", "half-precision:fp16", 76.3, 78.4),
    _tokens("t4", "gpt2", "fp32", "compile", 76.3, 110.3),
    _tokens("t4", "gpt2", "fp32", "half-precision:fp16+compile", 76.3, 206.1),
    _tokens("a100-80gb-sxm", "gpt2", "fp32", "half-precision:fp16", 96.2, 99.6),
    _tokens("a100-80gb-sxm", "gpt2", "fp32", "llm-int8", 96.2, 32.7),
    _tokens("a100-80gb-sxm", "mistral-7b", "fp16", "sdpa:flash-attention-2", 26.7, 20.4),
    _tokens("a100-80gb-sxm", "mistral-7b", "fp16", "nf4", 26.7, 18.7),
)
