"""torch.compile: chains of pointwise ops become one Triton kernel each, and Python overhead disappears."""

import re
from operator import eq
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from tracekit.advise.optimization import FLAG, Optimization
from tracekit.advise.optimizations.avoid_syncs import values_read_back, waits_for_nothing
from tracekit.advise.optimizations.cuda_graphs import ENTERED, guards_ns
from tracekit.advise.optimizations.cuda_graphs import advice as mask_advice
from tracekit.advise.optimizations.static_cache import WRITTEN, appended
from tracekit.advise.reasons import idle, launches, of_step, say
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.cost import GPU, Cost, Product
from tracekit.analyzers.predict import (
    GENERATED,
    MOST_TO_LAUNCH_NS,
    REPEATED,
    STATISTICS,
    WIDENING,
    Baseline,
    OpList,
    Outcome,
    Rows,
    changed,
    costed_by_time,
    each,
    fused,
    gates_first,
    in_phase,
    is_compiled,
    linear_product,
    masks,
    optimizes,
    pick,
    plain_launch_ns,
    put,
    remembered,
    retimed,
    rows_by_values,
    statistics_first,
    where,
    which,
)
from tracekit.analyzers.results import Statements

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

_KNOWN = outcomes(__file__)
LAUNCH = _KNOWN["launch"]
"""Host time of a launch in generated code, in plain launches of the run's host, independent of the host's eager
code."""
BREAK = _KNOWN["break"]
"""Host time of a graph that breaks where Python branches on a tensor in the host's memory, in plain launches."""
APPENDED = _KNOWN["appended"]
"""Host time of putting a grown tensor back into its cache, in plain launches."""
PRODUCTS = _KNOWN["products"]
"""Time of GEMMs relative to eager code. Without their bias, which is fused into what follows, they use other
kernels."""
FEW_WAVES = _KNOWN["few_waves"]
"""The same ratio for fp32 GEMMs on Hopper."""
TRANSPOSED = _KNOWN["transposed"]
"""Ratio of real to modelled time of a generated kernel that widens int8 weights, which it reads along a row and writes
along a column."""
UNWRAPPED = _KNOWN["unwrapped"]
"""Host time to unwrap a weight that is a tensor subclass at each call of compiled code, in plain launches."""
_NARROW = ("fp8", "int8")
_APART = (WIDENING, REPEATED, WRITTEN, STATISTICS)
"""Names of ops whose tensors their neighbours do not read: each is a separate kernel."""
_ALONE = re.compile(
    r"scatter|index_add|index_put|bincount|histc|multinomial|upsample_\w+_aa|embedding_bag|_[cp]dist_|repeat_interleave"
)
"""Ops that add to addresses to which others add, and wait for these in generated code, too, or are left to PyTorch."""
_NUMBER = 8
"""Largest size of a single number in bytes."""
ALIGNED = 8
"""Number of 16-bit elements to which the sides of a GEMM must be aligned for tensor cores."""

_BEFORE_DDP = "  # before DistributedDataParallel wraps it; with Trainer: TrainingArguments(torch_compile=True)"

_LOOKUP = Cost(0, 0, 0, "gather", "fp32", estimated=True)


class Compile(Optimization):
    """`torch.compile`: memory-bound ops are fused into Triton kernels, and Python leaves the step.

    Chains of memory-bound kernels become one kernel, across modules, but appends to a growing cache; what a kernel
    takes beyond 1.5 times its modelled time (lookups, resizes) stays. A norm over channels in training is two kernels
    of statistics (three of its gradients) before one that uses them, and one that counts. The host time does not depend
    on that of the eager code: each remaining launch takes the time of 2.65 (2.1 to 3.3) plain launches on this host.
    Each call takes 10 (5 to 20) to enter the compiled code and 0.55 (0.35 to 0.8) for the guards of each layer with
    weights, and, while decoding with a cache that grows, 0.5 (0.25 to 1) for each tensor put back into it. A branch on
    a tensor in the host's memory (a layer dropped at random) breaks the graph, at 90 (45 to 200) plain launches. The
    optimizer's step and other code outside of the model are not compiled. Unwrapping each weight of torchao takes the
    host time of 4.5 (2.5 to 8) plain launches; single numbers copied from the host become constants, without a wait.
    GEMMs take 1.0 (0.9 to 1.02) of their time, because without their bias they use other kernels; fp32 GEMMs with a
    bias on Hopper take 0.83 (0.75 to 1.0). GEMMs in 16 bits with rows that are not a multiple of 16 bytes (GPT-2's
    head) are padded. Without shapes, elementwise kernels are known by their names, and move the bytes that the GPU can
    move in their time. More than 30 elementwise ops in a chain outside of the backward pass write one value for 30 ops
    (at worst, all), and read 8 (at best 4) tensors for each: Inductor's limits.

    *Hurts* where a mask is built while tracing.

    **Masks that are built while tracing.** transformers 5.0 to 5.17 build attention masks while a step is traced
    (compile) or captured (graphs), although the same step runs without them. Fused kernels take a decoder's mask, but
    then compute the masked half too and do not support grouped heads, so keys and values are repeated. An encoder's
    mask (text from 5.0 on, images from 5.9) has a last stride of 0, which no fused kernel takes: attention falls back
    to PyTorch's math backend in 32 bits, 16 to 19 launches per layer, or seven compiled. For ViT-large in fp16 (8
    images, H200), 240 µs of attention become 4,500 µs, and CUDA graphs make the step 0.62 times as fast. The prediction
    is that loss, and a note gives the gain with transformers 5.18, which builds no mask without padding. A trace
    without versions is assumed to be unaffected.
    """

    id = "compile"
    effort = FLAG
    after = ("avoid-syncs",)  # a value that is read back breaks the graph

    def objection(self, base: Baseline) -> str | None:
        if not base.gpu.supports("compile"):
            return f"Triton does not generate code for {base.gpu.name}."
        if is_compiled(base):
            return "The run is already compiled."
        if base.running.is_graphed:
            return "The run already replays CUDA graphs: their kernels were recorded, and there is no Python to remove."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        return compiled(base, outcome)

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        entry_ns = entering_ns(base, outcome) + float(base.planning.sum())
        return replace(super().applied(base, outcome), entry_ns=entry_ns)

    def reason(self, base: Baseline) -> Statements:
        after = int(fused(base.ops, base.gpu, "expected", within_layer=False).launches.sum())
        if after >= base.ops.launches.sum():
            return (say("compile-launches", launches(base)),)
        return (say("compile", launches(base), of_step("after", "launches", after)),)

    def evidence(self, base: Baseline) -> Statements:
        return (say("idle", idle(base)),)

    def notes(self, base: Baseline) -> tuple[str, ...]:
        return mask_advice(self, base)

    def how_to(self, base: Baseline) -> str:
        return "model = torch.compile(model)" + _BEFORE_DDP * base.trains

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        return replace(changes, compile_mode="default")

    def apply(self, subject: "Subject") -> "Subject":
        return replace(subject, compile_mode="default").with_own_weights()


@remembered
def compiled(base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list of generated code and of the kernels that it calls."""
    entry_ns, base = entering_ns(base, outcome), _traced(base)
    base = replace(base, ops=statistics_first(gates_first(_turned(base, outcome)), base.gpu, outcome))
    alone = _rows_alone(base) | _rows_on_a_number(base.ops, "aten::add_")
    apart = alone | appended(base) | rows_by_values(base.ops) | _rows_beside_model(base.ops)
    ops = _named(fused(_padded(base, outcome), base.gpu, outcome, within_layer=False, among=~apart), base.ops)
    ops = masks.traced(replace(base, ops=ops), outcome)
    host = _host_ns(base, ops, outcome)
    host[0] += entry_ns + base.other_host_ns + base.planning.sum()
    factors = each(lambda name, cost: _factor(name, cost, base.gpu, outcome), ops.name, ops.cost, dtype=float)
    return ops.assign(host_ns=host, kernel_ns=ops.kernel_ns * factors)


@remembered
def _traced(base: Baseline) -> Baseline:
    """Return the run with the ops that are compiled. Lookups by tensors, of which no trace records shapes, can fuse."""
    ops = costed_by_time(base.ops, base.recorded.elementwise_in(base.ops), base.gpu)
    ops = ops[~(_literals(ops) | masks.skipped(ops))]
    unknown = (ops.name == "aten::index") & ~ops.costed
    return replace(base, ops=ops.assign(cost=changed(ops.cost, unknown, _LOOKUP)) if unknown.any() else ops)


def _rows_alone(base: Baseline) -> Rows:
    """Select the ops that are kernels of their own, with all inside their calls, and those on complex numbers."""
    is_complex = which(base.recorded.inputs_of(base.ops), lambda given: given is not None and "complex" in given[1])
    named = which(base.ops.name, lambda name: name in _APART or _ALONE.search(name))
    return np.asarray(named | which(base.ops.call, _ALONE.search) | is_complex)


def _named(ops: OpList, before: OpList) -> OpList:
    """Rename fused ops, so that they are launched as generated code launches its kernels."""
    alone = each(eq, ops.cost, before.cost[before.positions(ops.index)], dtype=bool)
    return ops.assign(name=changed(ops.name, ~alone, GENERATED + "fused"))


def _factor(name: str, cost: Cost | None, gpu: GPU, outcome: Outcome) -> float:
    if name == WIDENING:
        return pick(TRANSPOSED, outcome)
    if cost is None or cost.family != "gemm":
        return 1.0
    few = name == "aten::addmm" and cost.precision == "fp32" and gpu.compute_capability >= (9, 0)
    return pick(FEW_WAVES if few else PRODUCTS, outcome)


def _host_ns(base: Baseline, ops: OpList, outcome: Outcome) -> npt.NDArray[np.float64]:
    """Return the host time of each launch. What is not compiled keeps its own; the rest costs what a launch of
    generated code does on this host, at most what it costs in eager code."""
    apart = _rows_beside_model(ops)
    generated = ops.launches * pick(LAUNCH, outcome) * plain_launch_ns(base)
    before = np.minimum(base.ops.host_ns, MOST_TO_LAUNCH_NS)[~_rows_beside_model(base.ops)].sum()
    total = generated[~apart].sum()
    return np.where(apart, ops.host_ns, generated * min(1.0, before / total if total else 1.0))


def _rows_beside_model(ops: OpList) -> Rows:
    """Select the ops that compiling the model leaves: the optimizer's and, where layers are known, those around it."""
    outside = (ops.layer == "") & (ops.phase == "") & (ops.layer != "").any()
    return np.asarray(optimizes(ops) | outside)


@remembered
def entering_ns(base: Baseline, outcome: Outcome) -> float:
    """Return the host time of entering compiled code: once per forward pass, and once per graph break.

    A graph breaks at each value that is read back, at each other wait for the device, at each op whose shapes depend on
    values, and at each branch on a tensor in the host's memory.
    """
    asking = replace(base, ops=base.ops[~masks.skipped(base.ops)])
    breaks = values_read_back(asking) + waits_for_nothing(base) + int(rows_by_values(base.ops).sum())
    reentered = pick(ENTERED, outcome) * breaks
    put_back = pick(APPENDED, outcome) * appended(base).sum() * in_phase(base.ops, "decode").any()
    broken = pick(BREAK, outcome) * base.decisions
    unwrapped = pick(UNWRAPPED, outcome) * _torchao_layers(base)
    return guards_ns(base, outcome) + float(reentered + put_back + broken + unwrapped) * plain_launch_ns(base)


def _torchao_layers(base: Baseline) -> int:
    """Return the number of layers whose weights are tensor subclasses, which are unwrapped at each call."""
    narrow = where(base.ops, lambda cost: cost is not None and cost.family == "gemm" and cost.precision in _NARROW)
    return int((narrow | (base.ops.name == WIDENING)).sum())


def _literals(ops: OpList) -> Rows:
    """Return the copies of single numbers from the host, each with a wait; they are constants in compiled code."""
    waited_for = (ops.category == "memcpy") & ops.sync
    return np.asarray(waited_for & _rows_on_a_number(ops, "aten::copy_"))


def _rows_on_a_number(ops: OpList, name: str) -> Rows:
    """Select the ops of this name that write a single number, such as the count of a norm, which is incremented in
    place."""
    small = where(ops, lambda cost: cost is not None and cost.write_bytes <= _NUMBER)
    return np.asarray(small & (ops.name == name))


def _turned(base: Baseline, outcome: Outcome) -> OpList:
    """Return the op list in which int8 weights are widened in the order of their outputs."""
    rows = base.ops.name == WIDENING
    if not rows.any():
        return base.ops
    return put(base.ops, retimed(base.ops[rows], lambda cost: replace(cost, access="transposed"), base.gpu, outcome))


def _padded(base: Baseline, outcome: Outcome) -> OpList:
    """Pad GEMMs whose rows are not a multiple of 16 bytes, if that is faster (Inductor's pad_mm)."""
    padded = retimed(base.ops, _aligned, base.gpu, outcome)
    return base.ops.assign(kernel_ns=np.minimum(base.ops.kernel_ns, padded.kernel_ns))


def _aligned(cost: Cost) -> Cost:
    product = linear_product(cost)
    if product is None or cost.precision not in ("fp16", "bf16") or not isinstance(cost.work, Product):
        return cost
    names = ("n", "k", "m") if cost.work.gradient else ("n", "k")
    sides = {name: -(-getattr(cost.work, name) // ALIGNED) * ALIGNED for name in names}
    if replace(cost.work, **sides) == cost.work or product.rows == 1:
        return cost
    return replace(cost, work=replace(cost.work, **sides), read_bytes=cost.read_bytes + 2 * cost.weight_bytes)
