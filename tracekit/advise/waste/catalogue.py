"""Work that a better program would not do, as one optimization a kind: the simulated step without it."""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from tracekit.advise.optimization import Optimization, refused, runs_torch
from tracekit.advise.optimizations.host_work import named_causes
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.advise.waste.again import (
    forward_passes_again,
    heads_for_each_query,
    passes_without_cache,
    remade_constants,
)
from tracekit.advise.waste.casts import casts_back
from tracekit.advise.waste.copied import copied_each_pass
from tracekit.advise.waste.fewer import dense_experts, enlarged_early
from tracekit.advise.waste.finding import NOTABLE, Finding
from tracekit.advise.waste.folded import layers_that_are_one
from tracekit.advise.waste.gradients import backward_again, gradients_one_by_one
from tracekit.advise.waste.groups import loops_over_tensors
from tracekit.advise.waste.habits import (
    cells_step_by_step,
    checked_gradients,
    collected_and_freed,
    costly_algorithms,
    grown_by_copying,
)
from tracekit.advise.waste.inputs import (
    contended_sums,
    masked_attention,
    odd_transforms,
    padded_items,
    planned_again,
    sorted_gradients,
)
from tracekit.advise.waste.siblings import calls_in_a_row
from tracekit.advise.waste.swept import swept_tables
from tracekit.advise.waste.unasked import (
    dropout_in_inference,
    graphs_without_backward,
    numbers_in_64_bits,
    spread_and_summed,
    zeros_in_gradients,
)
from tracekit.advise.waste.unchanged import done_again
from tracekit.advise.waste.unused import logits_of_all_tokens, rows_of_which_few_are_picked, unused_gradients
from tracekit.advise.waste.weights import weights_for_each_item, weights_made_ready
from tracekit.advise.waste.zeros import work_on_zeros
from tracekit.analyzers.core import toml_table
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Outside
from tracekit.analyzers.results import Costs, Evidence, Statement, Statements

if TYPE_CHECKING:
    from tracekit.apply import Subject

_WIDTH = 124
Detector = Callable[[Baseline], Finding | None]


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The words of a kind of waste, a section of kinds.toml."""

    title: str
    what: str
    """What it finds, and how it is told from its look-alike."""
    nothing: str
    """Why it is refused without such work."""
    code: str
    costs: Costs
    ways: Mapping[str, str] = {}
    """Code for each of several ways of finding it, in place of `code`. One with a hyphen has its own sentence."""
    caveats: tuple[str, ...] = ()
    training: bool = True
    needless: bool = True
    """Whether the work is of no use in each step of a long run."""
    suspected: bool = False
    """Whether a trace does not show how much of the work it is."""
    without_torch: str = ""
    """Code for a program that does not run PyTorch; "": only PyTorch does such work."""


@cache
def kinds() -> Mapping[str, Kind]:
    table = toml_table(Path(__file__).with_name("kinds.toml"))
    return {name: msgspec.convert(section, Kind) for name, section in table.items()}


class Waste(Optimization):
    """Work that a better program would not do is left out."""

    fixes_mistake = True
    needs_gpu = False

    def __init__(self, name: str, detect: Detector) -> None:
        self._kind, self._detect = kinds()[name], detect
        self.id, self.title = name, self._kind.title
        self.costs, self.caveats = self._kind.costs, self._kind.caveats
        self.for_training, self.needs_torch = self._kind.training, not self._kind.without_torch
        self.needless, self.suspected = self._kind.needless, self._kind.suspected

    @property
    def description(self) -> str:
        return fill(" ".join(self._kind.what.split()), _WIDTH)

    def objection(self, base: Baseline) -> str | None:
        return None if _found(self, base) else self._kind.nothing

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        found = _found(self, base)
        changed = found.change(base, outcome) if found else base.ops
        return changed if len(changed) else base.ops[:1]

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        found = _found(self, base)
        return found.outside(base, outcome) if found else base.outside

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        """Return the run without the waste. Steps take different times because they plan for different shapes: what the
        simulated step is short of the mean shrinks as the step does, to nothing at best, and not at worst."""
        after, found = super().applied(base, outcome), _found(self, base)
        if found is None or not found.host_ns or outcome == "worst":
            return after
        part = (after.latency_ns - after.rest_ns) / max(base.latency_ns - base.rest_ns, 1.0)
        return replace(after, rest_ns=base.rest_ns * (min(part, 1.0) if outcome == "expected" else 0.0))

    def reason(self, base: Baseline) -> Statements:
        found = _found(self, base)
        if found is None:
            return ()
        time = base.outside_ns((*found.sure, *found.likely)) + found.host_ns
        values = [
            of_step("times", "launches", found.times),
            share_of(base, found.rows),
            of_step("time", "outside_ns", time),
            of_step("part", "outside_share", min(1.0, time / max(base.unprofiled_ns, 1.0))),
            of_step("tokens", "tokens", round(found.tokens)),
        ]
        return (say(found.way if "-" in found.way else self.id, *values),)

    def evidence(self, base: Baseline) -> Statements:
        found = _found(self, base)
        if found is None:
            return ()
        causes = named_causes(base, (*found.sure, *found.likely)) if found.sure else ()
        return (*causes, *_where(base, found), *largest(base, found.rows))

    def notes(self, base: Baseline) -> tuple[str, ...]:
        found = _found(self, base)
        return found.notes if found else ()

    def how_to(self, base: Baseline) -> str:
        found = _found(self, base)
        code = self._kind.ways.get(found.way if found else "", self._kind.code)
        return (code if runs_torch(base) else self._kind.without_torch).strip()

    def apply(self, subject: "Subject") -> "Subject":
        raise refused(self, "It is a change of the script, which the advice shows.")


_KEPT = 256
"""Number of findings that are kept: those of all kinds in several runs, which a search asks for again and again."""


@lru_cache(_KEPT)
def _detected(waste: Waste, base: Baseline) -> Finding | None:
    return waste._detect(base)


def _found(waste: Waste, base: Baseline) -> Finding | None:
    """Return what the detector finds, if it takes a notable part of the step. After an optimization, costs are no
    longer those of the recorded inputs: waste that the recorded run does not show is none."""
    found = _detected(waste, base) if base.origin is None or _detected(waste, base.origin) else None
    if found is None:
        return None
    time = base.ops.kernel_ns[found.rows].sum() + base.ops.host_ns[found.rows].sum()
    time += base.outside.total((*found.sure, *found.likely))
    return found if time > NOTABLE * base.unprofiled_ns else None


def _where(base: Baseline, found: Finding) -> Statements:
    """Return the line of source, or without stacks the layer, with most of the waste."""
    places, layers = base.recorded.places(base.ops), base.ops.layer
    for kind, role, values in (("waste-line", "location", places), ("waste-layer", "layer", layers)):
        if name := _most(base, values, found):
            return (_statement(kind, role, name),)
    return ()


def _most(base: Baseline, values: Any, found: Finding) -> str:
    """Return the value with the largest part of the waste; "" if most of it has none."""
    weight = (base.ops.kernel_ns + base.ops.host_ns)[found.rows]
    sums: dict[str, float] = {}
    for value, time in zip(np.asarray(values)[found.rows].tolist(), weight.tolist(), strict=True):
        sums[str(value)] = sums.get(str(value), 0.0) + time
    return max(sums, key=lambda each: sums[each], default="")


def _statement(kind: str, role: str, name: str) -> Statement:
    return say(kind, Evidence(role, name, "step", "name", name))


DETECTORS: dict[str, Callable[[Baseline], Finding | None]] = {
    "memory-management": collected_and_freed,
    "kv-cache": passes_without_cache,
    "one-call-per-item": calls_in_a_row,
    "gradients-one-by-one": gradients_one_by_one,
    "loop-of-small-ops": loops_over_tensors,
    "double-precision": numbers_in_64_bits,
    "recomputation": forward_passes_again,
    "dense-table": swept_tables,
    "zeroed-gradients": zeros_in_gradients,
    "computed-again": done_again,
    "remade-constants": remade_constants,
    "copied-again": copied_each_pass,
    "casts-back": casts_back,
    "weights-cast": weights_made_ready,
    "gathered-weights": weights_for_each_item,
    "repeated-heads": heads_for_each_query,
    "spread-and-summed": spread_and_summed,
    "unused-logits": logits_of_all_tokens,
    "unused-rows": rows_of_which_few_are_picked,
    "training-mode": dropout_in_inference,
    "autograd-in-inference": graphs_without_backward,
    "checked-gradients": checked_gradients,
    "cell-by-cell": cells_step_by_step,
    "one-hot-product": work_on_zeros,
    "grown-by-copying": grown_by_copying,
    "planned-again": planned_again,
    "padding": padded_items,
    "explicit-mask": masked_attention,
    "sorted-gradients": sorted_gradients,
    "odd-lengths": odd_transforms,
    "costly-algorithm": costly_algorithms,
    "contended-sums": contended_sums,
    "enlarged-early": enlarged_early,
    "dense-experts": dense_experts,
    "unused-gradients": unused_gradients,
    "backward-again": backward_again,
    "folded-layers": layers_that_are_one,
}

WASTE = tuple(Waste(name, detect) for name, detect in DETECTORS.items())
