"""A made-up analysis: a GPT-2 decode step on an H200 that waits for the host for 87 % of its time."""

from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import Idle
from tracekit.analyzers.attribute.idle_causes import idle_causes_table
from tracekit.analyzers.attribute.layer_tables import layer_ops_table, layer_parts_table
from tracekit.analyzers.attribute.op_tables import Totals
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import Considered, Costs, Evidence, analysis, of_step, say, tables
from tracekit.analyzers.trace import CaptureInfo, Latency
from tracekit.analyzers.trace.trace import PROBLEMS

H200 = hardware.find("h200")

BLOCKS, GAP_NS, NAN = 12, 20_000, float("nan")
# Per block: layer, type, kernel, op, family, busy ns, FLOPs, bytes, bound.
GEMV = ("gemv2T_kernel_val<float>", "aten::addmm", "gemm")
NORM = ("vectorized_layer_norm_kernel", "aten::native_layer_norm", "norm", 2_000, 6e3, 9e3, "latency")
ATTENTION = ("fmha_cutlassF_f32", "aten::_efficient_attention_forward", "attention", 6_000, 1.6e6, 3.2e6, "latency")
GELU = ("vectorized_elementwise_kernel<4, gelu>", "aten::gelu", "pointwise", 1_500, 3e4, 2.5e4, "latency")
BLOCK = [
    ("ln_1", "LayerNorm", *NORM),
    ("attn.c_attn", "Conv1D", *GEMV, 4_100, 3.5e6, 7.1e6, "memory"),
    ("attn", "GPT2Attention", *ATTENTION),
    ("attn.c_proj", "Conv1D", *GEMV, 2_900, 1.2e6, 2.4e6, "memory"),
    ("ln_2", "LayerNorm", *NORM),
    ("mlp.c_fc", "Conv1D", *GEMV, 5_000, 4.7e6, 9.4e6, "memory"),
    ("mlp.act", "NewGELUActivation", *GELU),
    ("mlp.c_proj", "Conv1D", *GEMV, 5_100, 4.7e6, 9.4e6, "memory"),
]
TYPES = {
    "model": "GPT2LMHeadModel",
    "transformer": "GPT2Model",
    "transformer.wte": "Embedding",
    "attn": "GPT2Attention",
    "mlp": "GPT2MLP",
    "lm_head": "Linear",
}


def build() -> analysis.Analysis:
    paths, types = _tree()
    work = _work(paths)
    layers = _layers(work, paths, types)
    busy, wall = int(work["busy_ns"].sum()), int(work["start_ns"].iloc[-1] + work["duration_ns"].iloc[-1])
    steps = {
        "step": [0],
        "start_ns": [0],
        "host_start_ns": [0],
        "wall_ns": [wall],
        "busy_ns": [busy],
        "idle_ns": [wall - busy],
    }
    return analysis.Analysis(
        source=_source(),
        latency=analysis.StepLatency(Latency(2_104.5, 2_051.25, 2_310.0, 50), wall / 1000),
        timeline=analysis.Timeline(wall, busy, wall - busy, tables.STEPS.frame({**steps, "kernels": [len(work)]})),
        work=work,
        layers=layers,
        layer_types=_layer_types(layers),
        ops=_ops(work),
        kernels=_kernels(work),
        phases=tables.PHASES.frame(
            {"name": ["decode"], "calls": [1], "wall_ns": [wall], "duration_ns": [busy], "busy_ns": [busy]}
            | {"kernels": [len(work)]}
            | {"share": [1.0], "flops": [work["flops"].sum()], "bytes": [work["bytes"].sum()], "bound": ["launch"]}
            | {"own_bound": ["memory"]}
        ),
        coverage=analysis.Coverage(op=1.0, layer=0.995, cost=0.982),
        bound=analysis.BoundShares(compute=0.0, memory=0.06, launch=0.87, latency=0.065, transfer=0.005),
        problems=PROBLEMS.frame(
            {"code": ["no-clock"], "severity": ["warning"], "count": [3], "message": ["3 events had no clock."]}
            | {"advice": ["Record again with the profiler's default clock."]}
        ),
        ranges=tables.RANGES.frame(
            {"category": ["range"], "name": ["phase: decode"], "calls": [1], "cpu_ns": [wall], "kernels": [len(work)]}
            | {
                "projected_ns": [wall],
                "mean_ns": [wall],
                "min_ns": [wall],
                "max_ns": [wall],
                "level": [0],
                "children": [1],
            }
        ),
        layer_ops=layer_ops_table(layers, work, totals := Totals(work)),
        layer_parts=layer_parts_table(layers, work, totals),
        gaps=(gaps := _gaps(work)),
        idle_causes=idle_causes_table(_idle(gaps)),
        host_causes=_host_causes(),
        host_spans=_host_spans(work),
        recommendations=_recommendations(),
        considered=_considered(),
        predicted_work=_predicted_work(),
    )


def _source() -> analysis.Source:
    capture = CaptureInfo(
        version="0.1.0",
        source="measured",
        device="cuda",
        gpu="h200",
        device_name="NVIDIA H200",
        driver="570.86",
        sm_clock_mhz=1980,
        memory_clock_mhz=3201,
        versions={"torch": "2.11.0", "transformers": "5.17.0", "cuda": "12.8"},
        model="gpt2",
        workload="decode",
        batch_size=1,
        seq_len=512,
        dtype="fp32",
        attention="sdpa",
        weights="random",
        parameters=124_439_808,
        weight_bytes=497_759_232,
        steps=1,
        latency=Latency(2_104.5, 2_051.25, 2_310.0, 50),
        peak_memory_bytes=620_000_000,
    )
    return analysis.Source("measured", "tracekit", "gpu", "NVIDIA H200", H200, "fp32", "tracekit ranges", capture)


def _tree() -> tuple[list[str], list[str]]:
    paths = ["model", "transformer", "transformer.wte"]
    for block in range(BLOCKS):
        head = f"transformer.h.{block}"
        paths += [head, *(f"{head}.{name}" for name in ("ln_1", "attn", "attn.c_attn", "attn.c_proj", "ln_2", "mlp"))]
        paths += [f"{head}.{name}" for name in ("mlp.c_fc", "mlp.act", "mlp.c_proj")]
    paths += ["lm_head", "(no layer)"]
    known = TYPES | {name: kind for name, kind, *_ in BLOCK}
    names = [path.split(".", 3)[-1] if path.startswith("transformer.h.") else path for path in paths]
    types = ["GPT2Block" if name.isdigit() else known.get(name, "") for name in names]
    return paths, types


def _work(paths: list[str]) -> pd.DataFrame:
    copy = ("Memcpy DtoH (Device -> Pageable)", "aten::copy_", "copy", 1_700, NAN, 8, "transfer")
    rows: list[tuple[Any, ...]] = [
        ("transformer.wte", "", "indexSelectSmallIndex", "aten::embedding", "embedding", 1_800, 0, 6e3, "latency")
    ]
    for block in range(BLOCKS):
        rows += [(f"transformer.h.{block}.{layer}", *rest) for layer, *rest in BLOCK]
    rows.append(("lm_head", "", *GEMV, 41_000, 7.7e7, 1.54e8, "memory"))
    rows.append(("(no layer)", "", *copy))
    layer, _, kernel, op, family, busy, flops, size, bound = (list(column) for column in zip(*rows, strict=True))
    n, time = len(rows), np.array(busy)
    start = np.cumsum(time + GAP_NS) - time
    roofline = np.maximum(np.nan_to_num(np.array(flops, float)) / 67e12, np.array(size, float) / 4.8e12) * 1e9
    return tables.WORK.frame(
        {
            "start_ns": start,
            "duration_ns": time,
            "busy_ns": time,
            "gap_ns": np.r_[0, np.full(n - 1, GAP_NS)],
            "delay_ns": np.full(n, 6_000),
            "graph": np.full(n, -1),
            "captured": np.full(n, -1),
            "device": np.zeros(n),
            "stream": np.full(n, 7),
            "category": ["kernel"] * (n - 1) + ["memcpy"],
            "name": kernel,
            "launch": np.arange(n),
            "op": np.arange(n),
            "op_name": op,
            "cost_op": np.arange(n),
            "layer": [paths.index(path) for path in layer],
            "phase": ["decode"] * n,
            "step": np.zeros(n),
            "family": family,
            "precision": ["fp32"] * n,
            "flops": flops,
            "bytes": size,
            "counters": np.full(n, -1),
            "intensity": np.array(flops, float) / np.array(size, float),
            "roof_fraction": roofline / time,
            "bound": bound,
            "own_bound": bound,
        }
    )


_TIMES = ("duration_ns", "busy_ns")
_BOUNDS = ("bound", "own_bound")


def _layers(work: pd.DataFrame, paths: list[str], types: list[str]) -> pd.DataFrame:
    parent = [_parent(path, paths) for path in paths]
    own = work.groupby("layer")[["busy_ns", "flops", "bytes"]].sum().reindex(range(len(paths))).fillna(0)
    own["kernels"] = work.groupby("layer").size().reindex(range(len(paths))).fillna(0)
    total = own.copy()
    for row in reversed(range(len(paths))):
        if parent[row] >= 0:
            total.iloc[parent[row]] += total.iloc[row]
    depth = [0] * len(paths)
    for row, above in enumerate(parent):
        depth[row] = depth[above] + 1 if above >= 0 else 0
    busy = work["busy_ns"].sum()
    return tables.LAYERS.frame(
        {
            "path": paths,
            "type": types,
            "parent": parent,
            "module": list(range(len(paths))),
            "depth": depth,
            "calls": [0 if path == "(no layer)" else 1 for path in paths],
            **dict.fromkeys(_TIMES, total["busy_ns"]),
            **dict.fromkeys(("self_duration_ns", "self_busy_ns"), own["busy_ns"]),
            "cpu_ns": total["kernels"] * GAP_NS,
            "kernels": total["kernels"],
            "share": total["busy_ns"] / busy,
            "flops": total["flops"],
            "bytes": total["bytes"],
            **{name: np.where(total["bytes"] > 1e6, "memory", "latency").astype(object) for name in _BOUNDS},
        }
    )


def _parent(path: str, paths: list[str]) -> int:
    if path in ("model", "(no layer)"):
        return -1
    above = path
    while "." in above:
        above = above.rsplit(".", 1)[0]
        if above in paths:
            return paths.index(above)
    return 0


def _layer_types(layers: pd.DataFrame) -> pd.DataFrame:
    grouped = layers.loc[layers["type"] != ""].groupby("type", sort=False)
    sums = grouped[["calls", *_TIMES, "self_duration_ns", "self_busy_ns", "share", "flops", "bytes"]].sum()
    return tables.LAYER_TYPES.frame(
        {"type": list(sums.index), "layers": grouped.size().to_numpy(), "synchronized_share": np.nan}
        | dict.fromkeys(_BOUNDS, grouped["bound"].first().to_numpy())
        | {name: sums[name].to_numpy() for name in sums.columns}
    )


def _ops(work: pd.DataFrame) -> pd.DataFrame:
    grouped = work.assign(name=work["family"].astype(str).map(lambda family: f"aten::{family}")).groupby("name")
    sums = grouped[["busy_ns", "flops", "bytes"]].sum()
    return tables.OPS.frame(
        {
            "name": list(sums.index),
            "family": grouped["family"].first().astype(object).to_numpy(),
            "calls": grouped.size().to_numpy(),
            "kernels": grouped.size().to_numpy(),
            **dict.fromkeys(_TIMES, sums["busy_ns"]),
            "cpu_ns": grouped.size().to_numpy() * 9_000,
            "share": sums["busy_ns"] / sums["busy_ns"].sum(),
            "flops": sums["flops"],
            "bytes": sums["bytes"],
            "intensity": sums["flops"] / sums["bytes"],
            "roof_fraction": grouped["roof_fraction"].mean(),
            **dict.fromkeys(_BOUNDS, grouped["bound"].first().to_numpy()),
        }
    )


def _kernels(work: pd.DataFrame) -> pd.DataFrame:
    grouped = work.assign(name=work["name"].astype(str)).groupby("name")
    sums = grouped[["busy_ns", "flops", "bytes"]].sum().assign(flops=grouped["flops"].sum(min_count=1))
    return tables.KERNELS.frame(
        {
            "name": list(sums.index),
            "category": ["memcpy" if name.startswith("Memcpy") else "kernel" for name in sums.index],
            "calls": grouped.size().to_numpy(),
            **dict.fromkeys(_TIMES, sums["busy_ns"]),
            "mean_ns": grouped["duration_ns"].mean(),
            "min_ns": grouped["duration_ns"].min(),
            "max_ns": grouped["duration_ns"].max(),
            "op": grouped["family"].first().astype(object).map(lambda family: f"aten::{family}").to_numpy(),
            "layer": ["GPT2Block"] * len(sums),
            "occupancy": np.full(len(sums), NAN),
            "share": sums["busy_ns"] / sums["busy_ns"].sum(),
            "flops": sums["flops"],
            "bytes": sums["bytes"],
            "intensity": sums["flops"] / sums["bytes"],
            "roof_fraction": grouped["roof_fraction"].mean(),
            **dict.fromkeys(_BOUNDS, grouped["bound"].first().to_numpy()),
        }
    )


def _gaps(work: pd.DataFrame) -> pd.DataFrame:
    """Return gaps in which the host is late, once because it had waited."""
    late = work[work["gap_ns"] > 0]
    return tables.GAPS.frame(
        {"start_ns": late["start_ns"] - late["gap_ns"], "duration_ns": late["gap_ns"], "device": np.zeros(len(late))}
        | {"step": late["step"], "work": late.index, "op": pd.Categorical(late["op_name"].astype(object))}
        | {"cause": pd.Categorical(["dispatch"] * (len(late) - 1) + ["sync"])}
    )


def _idle(gaps: pd.DataFrame) -> Idle:
    """Return the idle table, in which each gap has one part."""
    causes = pd.Categorical(gaps["cause"].astype(object), categories=[*tables.CAUSES, ""])
    parts = pd.DataFrame({"gap": np.arange(len(gaps)), "cause": causes})
    return Idle(gaps, parts.assign(row=-1, duration_ns=gaps["duration_ns"].to_numpy()))


def _host_causes() -> pd.DataFrame:
    return tables.HOST_CAUSES.frame(
        {"step": [0], "cause": ["sync"], "name": ["aten::item"], "location": ["generate.py:7"], "caller": ["generate"]}
        | {"gaps": [1], "idle_ns": [20_000]}
    )


def _host_spans(work: pd.DataFrame) -> pd.DataFrame:
    """Return an op around each launch, and a wait at the end."""
    launch = work["start_ns"] - work["delay_ns"]
    n = len(work)
    return tables.HOST_SPANS.frame(
        {
            "step": np.zeros(2 * n + 1),
            "start_ns": np.r_[launch - 5_000, launch, launch.iloc[-1] + 3_000],
            "duration_ns": np.r_[np.full(n, 12_000), np.full(n, 2_000), 4_000],
            "thread": np.zeros(2 * n + 1),
            "kind": pd.Categorical(["op"] * n + ["launch"] * n + ["sync"]),
            "name": pd.Categorical([*work["op_name"], *["cudaLaunchKernel"] * n, "cudaDeviceSynchronize"]),
        }
    )


def _recommendations() -> tuple[analysis.Recommendation, ...]:
    return (
        analysis.Recommendation(
            id="cuda-graphs",
            title="CUDA graphs",
            speedup=analysis.Interval(6.8, 7.4, 8.1),
            reason=(say("cuda-graphs", of_step("idle", "idle_share", 0.87)),),
            evidence=(
                say("idle", of_step("idle", "idle_share", 0.87)),
                say("optimizer-launches", of_step("launches", "launches", 99)),
                say("largest-op", Evidence("op", "aten::gemm", "ops", "name", "aten::gemm"), _of_gemm(0.64)),
            ),
            how_to='model.generation_config.cache_implementation = "static"\n'
            'model.forward = torch.compile(model.forward, mode="reduce-overhead")',
            caveats=("Needs a static KV cache: shapes must not change between steps.",),
            costs=Costs("the graph's own pool", "unchanged", "one line, where shapes are fixed"),
        ),
        analysis.Recommendation(
            id="batching",
            title="Batching",
            speedup=analysis.Interval(5.1, 6.9, 7.8),
            reason=(
                say("batching-idle", of_step("idle", "idle_share", 0.87)),
                say("batching-weights", of_step("share", "share", 0.94)),
            ),
            how_to="tracekit profile --model gpt2 --gpu h200 --workload decode --batch-size 8",
            caveats=("Throughput, not latency.",),
        ),
        analysis.Recommendation(
            id="fused-kernels",
            title="Fused kernels",
            speedup=analysis.Interval(1.08, 1.19, 1.31),
            reason=(say("fused-kernels", of_step("share", "share", 0.36)),),
            how_to="model = torch.compile(model)",
        ),
    )


_WAITS = "The run waits for the host, not the GPU."


def _of_gemm(share: float) -> Evidence:
    return Evidence("share", share, "ops", "share", "aten::gemm")


def _predicted_work() -> pd.DataFrame:
    """Return predicted work: CUDA graphs change nothing; fused kernels remove one part and change another."""
    rows = [
        ("cuda-graphs", "Conv1D", 205_200, 205_200, 1.7e8, 1.7e8, 3.4e8, 3.4e8),
        ("cuda-graphs", "LayerNorm", 48_000, 48_000, 1.4e5, 1.4e5, 2.2e5, 2.2e5),
        ("fused-kernels", "Conv1D", 205_200, 171_000, 1.7e8, 1.7e8, 3.4e8, 3.4e8),
        ("fused-kernels", "LayerNorm", 48_000, 0, 1.4e5, NAN, 2.2e5, NAN),
        ("fused-kernels", "NewGELUActivation", 18_000, 9_000, 3.6e5, 3.6e5, 3e5, 1.5e5),
    ]
    names = ("applied", "part", "before_ns", "after_ns", "before_flops", "after_flops", "before_bytes", "after_bytes")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    return tables.PREDICTED_WORK.frame(
        {**columns, "before_precision": ["fp32"] * 5, "after_precision": ["fp32", "fp32", "fp32", "", "fp32"]}
    )


def _considered() -> tuple[analysis.Considered, ...]:
    half = analysis.Interval(0.98, 1.0, 1.03)
    return (
        *_recommendations(),
        Considered(
            id="half-precision",
            title="Half precision",
            reason=(say("changes-nothing"),),
            speedup=half,
            notes=(_WAITS,),
        ),
        Considered(id="tensor-parallel", title="Tensor parallelism", speedup=None, objection="The model fits one GPU."),
    )
