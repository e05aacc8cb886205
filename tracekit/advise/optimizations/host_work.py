"""Base class of optimizations that remove host work outside the model.

A simulated step without that work is the bound.
"""

import re
from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tracekit.advise.host_copies import (
    CODE,
    MASKS,
    NOTABLE,
    NOTABLE_PART,
    RANDOM,
    leaving_before,
    long_to_device,
    made_on_host,
    of_causes,
    ops_on_host,
    read_on_host,
)
from tracekit.advise.optimization import Optimization, refused
from tracekit.analyzers.core import numbers, outcomes
from tracekit.analyzers.predict import Baseline, HostTail, OpList, Outcome, Outside, pick
from tracekit.analyzers.results import Evidence, Statement, Statements, of_step, say

if TYPE_CHECKING:
    from tracekit.apply import Subject

_NAMED = 3


class LessHostWork(Optimization):
    """Reduces the host work of some causes; at best it disappears, as far as the critical path allows."""

    fixes_mistake = keeps_kernels = True
    needs_gpu = False
    needs_torch = False
    causes: tuple[str, ...]
    names_function = True
    """Whether the reason names the function that takes most of the time."""
    nothing: str
    """Why it is refused without such work."""

    def reduced(self, base: Baseline) -> tuple[str, ...]:
        """Return the causes whose host work it reduces in this run."""
        return self.causes

    def objection(self, base: Baseline) -> str | None:
        return None if base.outside.total(self.reduced(base)) > NOTABLE * base.unprofiled_ns else self.nothing

    @abstractmethod
    def left(self, base: Baseline, outcome: Outcome) -> float:
        """Return the fraction of the work that remains on the critical path, 0 to 1."""

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        return base.ops

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        return base.outside.scaled(self.left(base, outcome), self.reduced(base))

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        """Return the run without this work. Steps of a script take different times because its host work does: what the
        simulated step is short of the mean is as much of this work as the step is, all of it at best, none at worst."""
        after = running_ahead(base, without_last_wait(base, super().applied(base, outcome)), outcome)
        if outcome == "worst" or base.rest_ns <= 0:
            return after
        gone = (base.outside.total() - after.outside.total()) / (base.latency_ns - base.rest_ns)
        gone = gone if outcome == "expected" else 1.0
        return replace(after, rest_ns=base.rest_ns * (1 - min(gone, 1.0)))

    def reason(self, base: Baseline) -> Statements:
        causes = self.reduced(base)
        time = base.outside_ns(causes)
        share = min(time / max(base.unprofiled_ns, 1.0), 1.0)
        spent = say(self.id, of_step("time", "outside_ns", time), of_step("share", "outside_share", share))
        return (spent, *(most_of_it(base, causes) if self.names_function else ()))

    def evidence(self, base: Baseline) -> Statements:
        return named_causes(base, self.reduced(base))

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "It is a change of the code around the model, which the advice shows.")


def without_last_wait(before: Baseline, after: Baseline) -> Baseline:
    """Return the run after a change whose steps no longer end in a wait, if that was for a copy which is left out and
    no other call asks for it. What the host does after the wait remains."""
    gone = len(before.ops) > 0 and before.ops.sync[-1] and not after.ops.sync[-1]
    if not gone or after.tail is None or after.tail.for_all:
        return after
    return replace(after, tail=HostTail(before_ns=after.tail.before_ns + after.tail.after_ns))


def running_ahead(before: Baseline, after: Baseline, outcome: Outcome) -> Baseline:
    """Return the run after a change in which, except at worst, the host launches the next step while the device
    computes this one: if it had more to do than the device, has less, and waits for nothing."""
    waits = after.ops.sync.any() or (after.tail and after.tail.waits)
    was_ahead, is_ahead = (run.ops.host_ns.sum() + run.outside.total() < run.busy_ns for run in (before, after))
    ahead = is_ahead and not (was_ahead or waits or outcome == "worst")
    return replace(after, overlaps=True) if ahead else after


def most_of_it(base: Baseline, causes: tuple[str, ...]) -> Statements:
    """Return the function that takes at least half of the time of these causes; empty if none does."""
    rows = of_causes(base, causes)
    sums = rows.groupby("name")["idle_ns"].sum()
    if not len(sums) or not sums.idxmax() or 2 * sums.max() < sums.sum():
        return ()
    name = str(sums.idxmax())
    return (say("most-of-it", Evidence("name", name, "host_causes", "name", name)),)


def named_causes(base: Baseline, causes: tuple[str, ...]) -> Statements:
    """Return the names with most time among these causes: the function, and its caller."""
    named = base.host_causes[base.host_causes["cause"].isin(causes) & (base.host_causes["name"] != "")]
    sums = named.groupby(["name", "location", "caller"], sort=False)["idle_ns"].sum().reset_index()
    top = sums.nlargest(_NAMED, "idle_ns")
    columns = (top[column] for column in ("name", "location", "caller", "idle_ns"))
    rows = zip(*columns, strict=True)
    return tuple(_named(str(name), str(place), str(caller), float(ns)) for name, place, caller, ns in rows)


def _named(name: str, location: str, caller: str, ns: float) -> Statement:
    cell = Evidence("name", name, "host_causes", "name", name)
    values = [cell, Evidence("time", ns, "host_causes", "idle_ns", name)]
    if location:
        values.append(Evidence("location", location, "host_causes", "location", name))
    if caller:
        values.append(Evidence("caller", caller, "host_causes", "caller", name))
    kind = "host-cause" + ("-at" if location else "") + ("-by" if caller else "")
    return say(kind, *values)


_KNOWN = outcomes(__file__)
_NUMBERS = numbers(__file__)
MOVED = _KNOWN["moved"]
"""Fraction of a function's time that disappears once it runs on the GPU."""
OPS_MOVED = _KNOWN["ops_moved"]
"""The same for ops of PyTorch, which the GPU runs without another line."""
UNNAMED = _NUMBERS["unnamed"]
"""Fraction of a step above which time in which the host recorded nothing counts as code outside the model."""
_UNNAMED_CAUSE = ("unexplained",)
MAPPED = 32 << 20
"""Size in bytes from which the C library maps new memory for each allocation, and unmaps it when it is freed."""
_CODES = (
    (
        r"image_process|processing_|feature_extract|preprocess",
        "processor = AutoProcessor.from_pretrained(name, use_fast=True)\n"
        'inputs = processor(images=images, device="cuda", return_tensors="pt")',
    ),
    (RANDOM, 'noise = torch.randn(shape, device="cuda")  # drawn on the GPU: nothing is copied'),
    (MASKS, 'mask = torch.ones(n, n, dtype=torch.bool, device="cuda").tril()  # on the GPU, once'),
    (r"video|decord|\bav\.|cv2|imageio", 'decoder = torchcodec.decoders.VideoDecoder(path, device="cuda")'),
    (
        r"zoom|resize|interpolat|\bPIL\b|Image\.",
        'images = torch.nn.functional.interpolate(images.to("cuda"), size=size, mode="bilinear")',
    ),
    (
        r"pin_memory",
        "pinned = torch.empty(shape, pin_memory=True)  # once; pinned.copy_(batch) in each step\n"
        "loader = DataLoader(dataset, num_workers=8, pin_memory=True)  # or beside the steps",
    ),
    (
        r"serialization|torch[./]save|pickle|deepcopy|state_dict",
        "if step % 500 == 0:  # not in each step; torch.distributed.checkpoint.async_save does not wait\n"
        "    torch.save(model.state_dict(), path)",
    ),
    (r"aten::(?:index|index_select|gather|take)\b", 'data = data.to("cuda")  # once; batch = data[index] on the GPU'),
)
"""Code for functions of the host, by a pattern of their names or those of their callers."""


class Preprocessing(LessHostWork):
    """Host code around and inside the model moves to the GPU or out of the step, or is removed.

    Counted are functions outside the model and long stretches of Python inside it; without Python stacks, the time in
    which the host recorded nothing, if that is a quarter of a step. 0.98 of this time is expected to disappear, 0.997
    of that of PyTorch's ops; at the high end all of it, at the low end nine tenths of the largest named function's
    time. So do, except at the low end, copies of what PyTorch's ops make on the host from constants or random numbers,
    and those of what this code reads: it takes longer after them than they do, writes no files, and makes nothing large
    that is copied to the GPU. At the high end, nothing large is copied to the host before this code, nor to the
    GPU from pageable memory. The evidence names the functions.

    *Refused* if they take less than 1 % of the step.
    """

    id = "preprocessing"
    causes = CODE
    nothing = "No function of the host outside the model's ops takes a notable part of the step."

    def reduced(self, base: Baseline) -> tuple[str, ...]:
        return (*self.causes, *_UNNAMED_CAUSE) if _unnamed(base) else self.causes

    def left(self, base: Baseline, outcome: Outcome) -> float:
        """Return the fraction of the work that remains; at worst, only the largest function is moved."""
        moved = pick(OPS_MOVED if ops_on_host(base) else MOVED, outcome)
        return 1 - moved * (_largest_share(base, self.reduced(base)) if outcome == "worst" else 1.0)

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Leave out the copies of what the host makes of nothing, or reads, which the GPU does in its place. At best,
        it makes all that is copied to it, and reads all that is copied from it before this work."""
        ops, made = base.ops, (made_on_host(base) | read_on_host(base)) & (outcome != "worst")
        made |= (long_to_device(base) | leaving_before(base, self.reduced(base))) & (outcome == "best")
        kernel, host = (np.where(made, 0.0, times) for times in (ops.kernel_ns, ops.host_ns))
        return ops.assign(kernel_ns=kernel, host_ns=host, sync=ops.sync & ~made)

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        """Return the host work that remains. New memory is mapped and unmapped for each large tensor, in no event."""
        rest = super().outside(base, outcome)
        mapped = (base.recorded.copied_bytes(base.ops) >= MAPPED) & (made_on_host(base) | read_on_host(base))
        return rest.scaled(0.0, _UNNAMED_CAUSE) if mapped.any() and outcome != "worst" else rest

    def reason(self, base: Baseline) -> Statements:
        return (*super().reason(base), *((say(_unnamed_by(base)),) if _unnamed(base) else ()))

    def how_to(self, base: Baseline) -> str:
        if _unnamed(base) and base.source.format == "nsys":
            return "nsys profile -t cuda,nvtx,osrt --sample=process-tree PROGRAM  # names the functions"
        if _unnamed(base):
            return "with torch.profiler.profile(with_stack=True) as profiler:  # names the functions, with their lines"
        rows = of_causes(base, self.causes)
        times = rows.groupby(rows["name"].astype(str) + " " + rows["caller"].astype(str))["idle_ns"].sum()
        for name in times[times > NOTABLE_PART * times.sum()].sort_values(ascending=False).index:
            if code := next((code for pattern, code in _CODES if re.search(pattern, name, re.IGNORECASE)), ""):
                return code
        return "# with torch ops on the GPU, once before the loop, or in workers: DataLoader(dataset, num_workers=8)"


def _unnamed_by(base: Baseline) -> str:
    """Return the kind of the statement on unrecorded time, which names what the recorder of the trace can record."""
    return "host-work-unsampled" if base.source.format == "nsys" else "host-work-unnamed"


def _largest_share(base: Baseline, causes: tuple[str, ...]) -> float:
    """Return the largest named function's fraction of the work, 0 to 1."""
    rows = of_causes(base, causes)
    times = rows.groupby("name")["idle_ns"].sum()
    named = times[times.index != ""]
    return float(named.to_numpy().max(initial=0.0) / times.sum()) if times.sum() else 1.0


def _unnamed(base: Baseline) -> bool:
    """Return whether the host recorded nothing for a large part of the step, and the GPU waited meanwhile.

    In a trace without events of the host, idle time has no cause: nothing shows that this code kept the GPU waiting.
    """
    waited = base.host_causes["cause"].isin(_UNNAMED_CAUSE).any()
    return bool(waited) and base.outside.total(_UNNAMED_CAUSE) > UNNAMED * base.unprofiled_ns
