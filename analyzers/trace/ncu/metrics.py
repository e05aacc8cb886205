"""Converts metrics of Nsight Compute to FLOPs, bytes and shares, and matches kernels to launches.

Instruction counts are per thread, predicated on. Adds and multiplies are 1 FLOP, multiply-adds 2. Half-precision
instructions are packed since 2025 (derived metrics are then named `hfma..._x4`, before `_x2`) and count 2, 2 and 4.
Metrics `sm__ops_path_tensor_*` are already FLOPs. Older reports count instructions of the tensor pipe, each of which is
counted as 512 FLOPs, as on Volta. A sum that was not collected is computed from its rate: per second times the
duration, or per cycle times the elapsed cycles, which follow from the clock if they were not collected either, as with
--set full. Tensor cores that were never active executed 0 FLOPs.

Kernels of a trace match measured launches by name, blocks and threads per block. Among equal kernels, the k-th in the
trace matches the k-th measured, starting over after the last, because a report usually contains one step, or some
layers, of a trace. Names are first compared with their template arguments, then without.
"""

import re
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Floats, Ints

_WANTED = re.compile(
    r"(?:smsp|sm)__sass_thread_inst_executed_op_[fhd](?:add|mul|fma)_pred_on\.sum"
    r"|derived__\w*hfma_pred_on_x[24]"
    r"|sm__ops_path_tensor_\w+\.sum|sm__inst_executed_pipe_tensor\w*\.sum|sm__pipe_tensor_cycles_active\.avg\.pct"
    r"|(?:smsp|sm)__cycles_elapsed\.avg(?:\.per_second)?$|gpu__time_duration\.sum"
    r"|dram__bytes(?:_read|_write)?\.sum|lts__t_(?:bytes|sectors)\.sum"
    r"|(?:gpu__dram_|dram__|sm__)throughput\.avg\.pct|sm__warps_active\.avg\.pct"
    r"|launch__(?:registers_per_thread|sm_count)$|device__attribute_total_memory$"
)
_TENSOR_OF = re.compile(r"sm__ops_path_tensor_(?P<op>op_[a-z]+_)?src_(?P<type>[a-z]+\d+)\w*\.sum")
_TENSOR_ACTIVE = tuple(f"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_{of}" for of in ("active", "elapsed"))
_OLD_TENSOR = "sm__inst_executed_pipe_tensor"
_FLOPS_AN_OLD_TENSOR_INSTRUCTION = 512
_SECTOR_BYTES = 32
_PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
PIPES = ("fp16", "fp32", "fp64", "tensor")


def wanted(name: str) -> bool:
    """Return whether a metric is used here; a report contains a thousand others."""
    return _WANTED.match(name) is not None


def flops_by_pipe(metrics: pd.DataFrame) -> dict[str, Floats]:
    """Return the FLOPs of the pipes fp16, fp32, fp64 and tensor, and their sum "all"; NaN if not measured."""
    packed = 1 if any(name.endswith("hfma_pred_on_x2") for name in metrics.columns) else 2
    scalar = {"fp16": _instructions(metrics, "h") * packed}
    scalar |= {"fp32": _instructions(metrics, "f"), "fp64": _instructions(metrics, "d")}
    by_type = tensor_by_type(metrics)
    tensor = _sum(by_type.values()) if by_type else _nothing(metrics)
    tensor = np.where(np.isnan(tensor) & (column(metrics, *_TENSOR_ACTIVE) == 0), 0.0, tensor)
    others = np.nan_to_num(scalar["fp16"]) + np.nan_to_num(scalar["fp64"])
    return {**scalar, "tensor": tensor, "all": scalar["fp32"] + tensor + others}


def tensor_by_type(metrics: pd.DataFrame) -> dict[str, Floats]:
    """Return the FLOPs of the tensor cores by operand type; "" if an old report does not distinguish types.

    If the report has the total of a type, it is used; otherwise the kinds of instruction are summed.
    """
    metrics_by_type: dict[str, dict[bool, list[str]]] = {}
    for name in metrics.columns:
        if match := _TENSOR_OF.match(str(name)):
            base = str(name)[: match.end() - len(".sum")]
            kinds = metrics_by_type.setdefault(match["type"], {}).setdefault(match["op"] is None, [])
            kinds.extend([base] if base not in kinds else [])
    if metrics_by_type:
        return {
            of: _sum(total(metrics, base) for base in kinds.get(True) or kinds[False])
            for of, kinds in metrics_by_type.items()
        }
    old = total(metrics, _OLD_TENSOR)
    return {} if np.isnan(old).all() else {"": old * _FLOPS_AN_OLD_TENSOR_INSTRUCTION}


def main_precision(metrics: pd.DataFrame) -> npt.NDArray[np.object_]:
    """Return the precision of most FLOPs; "" without FLOPs, or if the pipe does not determine it."""
    pipes = flops_by_pipe(metrics)
    kinds = {"fp64": [pipes["fp64"]], "fp32": [pipes["fp32"]], "": [pipes["fp16"]]}
    for of, flops in tensor_by_type(metrics).items():
        kinds.setdefault(of if of in _PRECISIONS else "", []).append(flops)
    names = np.array([*kinds, ""], dtype=object)
    sums = np.column_stack([*(np.nansum(flops, axis=0) for flops in kinds.values()), np.zeros(len(metrics))])
    unknown = np.isnan(pipes["all"]) | (sums.max(axis=1) <= 0)
    return names[np.where(unknown, len(kinds), sums.argmax(axis=1))]


def memory_bytes(metrics: pd.DataFrame) -> dict[str, Floats]:
    """Return the bytes of device memory read, written and both ("all"), and of the L2 cache ("l2")."""
    read, write = total(metrics, "dram__bytes_read"), total(metrics, "dram__bytes_write")
    both, l2 = total(metrics, "dram__bytes"), total(metrics, "lts__t_bytes")
    sectors = total(metrics, "lts__t_sectors") * _SECTOR_BYTES
    return {
        "read": read,
        "write": write,
        "all": np.where(np.isnan(read + write), both, read + write),
        "l2": np.where(np.isnan(l2), sectors, l2),
    }


def total(metrics: pd.DataFrame, name: str) -> Floats:
    """Return the sum of a counter, as measured or computed from its rates."""
    seconds = column(metrics, "gpu__time_duration.sum")
    cycles = column(metrics, "smsp__cycles_elapsed.avg", "sm__cycles_elapsed.avg")
    clock = column(metrics, "smsp__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second")
    cycles = np.where(np.isnan(cycles), clock * seconds, cycles)
    values = column(metrics, f"{name}.sum")
    for rate in (
        column(metrics, f"{name}.sum.per_second") * seconds,
        column(metrics, f"{name}.sum.per_cycle_elapsed") * cycles,
    ):
        values = np.where(np.isnan(values), rate, values)
    return values


def share(metrics: pd.DataFrame, *names: str) -> Floats:
    """Return a percentage as a fraction."""
    return column(metrics, *names) / 100


def column(metrics: pd.DataFrame, *names: str) -> Floats:
    """Return the first of these metrics that the report has; NaN without any."""
    return next((metrics[name].to_numpy(dtype=float) for name in names if name in metrics.columns), _nothing(metrics))


def _instructions(metrics: pd.DataFrame, kind: str) -> Floats:
    counts = []
    for op, flops in (("add", 1), ("mul", 1), ("fma", 2)):
        name = f"__sass_thread_inst_executed_op_{kind}{op}_pred_on"
        of_smsp = total(metrics, f"smsp{name}")
        counts.append(flops * np.where(np.isnan(of_smsp), total(metrics, f"sm{name}"), of_smsp))
    return _sum(counts)


def _sum(parts: Iterable[Floats]) -> Floats:
    return np.sum(np.array(list(parts)), axis=0)


def _nothing(metrics: pd.DataFrame) -> Floats:
    return np.full(len(metrics), np.nan)


_KEY = ["name", "blocks", "threads_per_block"]


def match(kernels: pd.DataFrame, counters: pd.DataFrame) -> Ints:
    """Return the row in COUNTERS for each row of DEVICE; -1 if it was not measured, or is not a kernel."""
    row = np.full(len(kernels), -1, dtype=np.int64)
    for form in (full, base):
        wanted = np.flatnonzero((row < 0) & (kernels["category"] == "kernel").to_numpy())
        measured = np.setdiff1d(np.arange(len(counters)), row)
        position = _match_as(_keyed(kernels.iloc[wanted], form), _keyed(counters.iloc[measured], form))
        row[wanted] = np.append(measured, -1)[position]
    return row


def _match_as(kernels: pd.DataFrame, launches: pd.DataFrame) -> Ints:
    """Return positions in the launches; -1 for none."""
    by_turn = launches.drop(columns="device").assign(turn=launches.groupby(_KEY).cumcount())
    by_turn["position"] = np.arange(len(launches))
    size = launches.groupby(_KEY).size().rename("size").reset_index()
    turn = kernels.groupby([*_KEY, "device"]).cumcount()
    wanted = kernels.assign(turn=turn).merge(size, on=_KEY, how="left")
    wanted["turn"] = (wanted["turn"] % wanted["size"]).fillna(-1).astype(np.int64)
    position = wanted.merge(by_turn, on=[*_KEY, "turn"], how="left")["position"]
    return position.fillna(-1).to_numpy(np.int64)


def _keyed(launches: pd.DataFrame, form: Callable[[str], str]) -> pd.DataFrame:
    codes, distinct = pd.factorize(launches["name"])
    forms = np.array([*(form(str(name)) for name in distinct), ""], dtype=object)
    return launches[["blocks", "threads_per_block", "device"]].assign(name=forms[codes]).reset_index(drop=True)


_LAMBDA = re.compile(r"\{lambda\([^{}]*\)#(\d+)\}|\[lambda\([^\[\]]*\) \(instance (\d+)\)\]")
_PARENTHESES = re.compile(r"\([^()]*\)")
_INSIDE_A_FUNCTION = re.compile(r"::operator\s*(?:const\s*)?::|::(?=lambda\d)")
_NAMESPACE = re.compile(r"(?:\b\w+|<unnamed>)::")
_WORDS = re.compile(r"\b(?:void|const)\b")
_SUFFIX = re.compile(r"\b(\d+)[uUlL]+\b")
_SPACE = re.compile(r"\s+")
_MANGLED_PART = re.compile(r"\d+")
_LONGEST = 20_000


def full(name: str) -> str:
    """Return the name with its template arguments, without namespaces and parameters."""
    text = _LAMBDA.sub(lambda match: f"lambda{match[1] or match[2]}", name[:_LONGEST])
    text = _without_parameters(text.replace("(anonymous namespace)", "<unnamed>"))
    text = _WORDS.sub("", _INSIDE_A_FUNCTION.sub(".", text))
    text = _SUFFIX.sub(r"\1", _NAMESPACE.sub("", text))
    text = re.sub(r"\btrue\b", "1", re.sub(r"\bfalse\b", "0", text))
    return _SPACE.sub("", text)


def base(name: str) -> str:
    """Return the function's own name from a demangled or mangled name."""
    if name.startswith("_Z"):
        return _last_part(name)
    return full(name).split("<", 1)[0]


def _without_parameters(text: str) -> str:
    shorter = _PARENTHESES.sub("", text)
    while shorter != text:
        text, shorter = shorter, _PARENTHESES.sub("", shorter)
    return shorter


def _last_part(mangled: str) -> str:
    """Return the last of the length-prefixed parts of a mangled name (Itanium C++ ABI), which is the function."""
    at, last = 3 if mangled.startswith("_ZN") else 2, ""
    while match := _MANGLED_PART.match(mangled, at):
        end = match.end() + min(int(match[0][:6]), _LONGEST)
        last, at = mangled[match.end() : end], end
    return last or mangled
