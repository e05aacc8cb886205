"""Models the runs of published results, and predicts their optimizations."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from msgspec import structs

from benchmarks.blind.predict import HOST_LOGS
from tracekit.advise import parse, scenarios, speedup, unchanged
from tracekit.advise.outcomes import sources
from tracekit.analyzers import analyze
from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict import Baseline, Sources, baseline, which
from tracekit.analyzers.trace import load
from tracekit.capture import complete, model_trace
from tracekit.run import Settings

_NOT_BUNDLED = {
    "llama-2-7b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }
}
_SAME_SHAPES = {"llama-3-8b": "llama-3.1-8b"}


@dataclass(frozen=True)
class Case:
    """`before` and `after` are the published times of a step (or a token) in milliseconds."""

    gpu: str
    """Id in gpus.toml, or name in _SPECIAL."""
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


@dataclass(frozen=True)
class Predicted:
    case: Case
    before_ms: Interval
    """Modelled latency of the step before the optimization."""
    speedup: Interval
    sources: Sources
    """Settings on which the speed-up depends."""

    @property
    def error(self) -> float:
        return abs(self.speedup.expected / self.case.speedup - 1)

    @property
    def right_sign(self) -> bool:
        """Whether both show a gain, or both a loss, or the published change is below 3 %."""
        published, predicted = self.case.speedup, self.speedup.expected
        return abs(published - 1) <= 0.03 or (published > 1) == (predicted > 1)

    @property
    def inside(self) -> bool:
        return self.speedup.low <= self.case.speedup <= self.speedup.high


def predicted(case: Case) -> Predicted:
    base = run(case.gpu, case.model, case.workload, case.batch, case.seq, case.dtype, case.attention)
    before = scenarios(parse(case.already), base, HOST_LOGS) if case.already else unchanged(base, HOST_LOGS)
    after = scenarios(parse("+".join(filter(None, [case.already, case.apply]))), base, HOST_LOGS)
    hosts = (base.host_range.low, 1.0, base.host_range.high)
    low, expected, high = (before.expected.simulate(before.expected.ops, host) / 1e6 for host in hosts)
    return Predicted(case, Interval(low, expected, high), speedup(before, after), sources(before, after))


@cache
def run(gpu: str, model: str, workload: str, batch: int, seq: int, dtype: str, attention: str) -> Baseline:
    """Return the modelled run as a baseline."""
    target = _gpu(gpu)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        options = {"workload": workload, "batch_size": batch, "seq_len": seq, "dtype": dtype, "attention": attention}
        asked = Settings(model=_named(model, folder), gpu=target.id, device="model", **options)  # type: ignore[arg-type]
        model_trace.write_trace(complete(asked), target, folder / "trace.json.gz")
        trace = load(folder / "trace.json.gz")
        base = baseline(trace, analyze(trace, None))
    assert base is not None
    ops = base.ops[base.ops.phase != "optimizer"]  # the published steps of training end with the backward pass
    host = target.host_op_us
    open_range = Interval(host.low / host.expected, 1.0, host.high / host.expected)
    return structs.replace(base, ops=ops, gpu=target, host_range=open_range)


def _named(model: str, folder: Path) -> str:
    if model not in _NOT_BUNDLED:
        return _SAME_SHAPES.get(model, model)
    (folder / "config.json").write_text(json.dumps(_NOT_BUNDLED[model]))
    return str(folder)


_PARTS = {
    "blocks": r"\.h\.\d+",
    "LM head": r"^lm_head",
    "attention": r"\.h\.\d+\.attn",
    "MLP": r"\.h\.\d+\.mlp",
    "two norms": r"\.h\.\d+\.ln_[12]",
}
_OF_FORWARD = ("blocks", "LM head")


def parts() -> dict[str, tuple[float, float]]:
    """Return the shares of the parts of GPT-2's forward pass on a T4: if each module is waited for, and of its kernels.

    Blocks and head are shares of the pass, the other parts of the blocks. If it is waited for, an op takes its host's
    time or its kernel's, whichever is longer.
    """
    ops = run("t4", "gpt2", "decode", 1, 60, "fp32", "sdpa").ops
    shares = [_shares(ops.layer, times) for times in (np.maximum(ops.host_ns, ops.kernel_ns), ops.kernel_ns)]
    return {name: (shares[0][name], shares[1][name]) for name in _PARTS}


def _shares(layers: "pd.Series[str]", times: "pd.Series[float]") -> dict[str, float]:
    of = {name: float(times[which(layers, re.compile(part).search)].sum()) for name, part in _PARTS.items()}
    whole = float(times.sum())
    return {name: time / (whole if name in _OF_FORWARD else of["blocks"]) for name, time in of.items()}


TABLE = "calibration/published_end_to_end.csv"
GRAPHS = "compile+cuda-graphs"


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


def _gpu(name: str) -> GPU:
    """Return a GPU of the catalogue, with changed properties if given. It keeps the id, which traces refer to."""
    return _SPECIAL[name]() if name in _SPECIAL else hardware.find(name)


def _rtx_3080_ti_laptop() -> GPU:
    """GA103: 58 multiprocessors at 1.59 GHz, 512 GB/s; its host is a recent laptop processor."""
    return structs.replace(
        hardware.find("rtx-3090"),
        name="NVIDIA GeForce RTX 3080 Ti Laptop GPU",
        sms=58,
        clock_ghz=1.59,
        memory_gb=16,
        bandwidth_gbs=512,
        l2_mb=4,
        tdp_w=150,
        peaks_tflops={
            "fp64": 0.37,
            "fp32": 23.6,
            "tf32": 23.6,
            "fp16": 47.2,
            "bf16": 47.2,
            "int8": 188.9,
            "int4": 377.8,
        },
        host_op_us=Interval(8.0, 10.0, 13.0),
    )


def _h100_with_hbm2e() -> GPU:
    return structs.replace(hardware.find("h100-sxm"), name="NVIDIA H100, 2.4 TB/s", bandwidth_gbs=2400)


_SPECIAL = {"rtx-3080-ti-laptop": _rtx_3080_ti_laptop, "h100-2.4tb": _h100_with_hbm2e}
