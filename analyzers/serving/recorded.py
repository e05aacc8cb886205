"""Passes of a running engine as a trace recorded them, the twin's time for each, and the twin fitted to them.

Kernels have no shapes in CUDA graphs and in most traces of engines, so they are compared by families, which their names
tell. Time of a pass without a kernel is the host's, unless the next kernel had been launched long before: it then
waits for work that the trace does not hold.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import pandas as pd

from tracekit.analyzers.attribute import Batch, UserRanges, batch, is_communication, named_kind, serving_phase
from tracekit.analyzers.core import InputError
from tracekit.analyzers.serving.deployment import Deployment, Fitted
from tracekit.analyzers.serving.passes import Chunk, PassTimes

FAMILIES: dict[str, tuple[str, ...]] = {
    "weights": ("products", "sampling"),
    "experts": ("experts",),
    "attention": ("cache", "prompts"),
    "sums": ("sums",),
    "others": ("glue",),
}
"""Families of kernels, and the parts of a pass that they take."""
_EXPERTS = re.compile(r"moe|_ogs_|grouped|expert|routing", re.IGNORECASE)
_LAUNCHED_LONG_AGO_NS = 1_000_000
_MAIN = 0.5
"""Share of a family's time from which on a pass tells of one of its parts."""
_BOUNDS = (0.05, 20.0)
_ALIKE = 3
"""Passes from which on most are taken to be usual ones."""
_LARGE = 1.5
"""Device time relative to the median from which on a pass whose range says nothing is taken to hold prompts."""


@dataclass(frozen=True)
class RecordedPass:
    """A pass: what it works on, if its range says so, and its seconds by family of kernels and of the host."""

    batch: Batch | None
    device_s: Mapping[str, float]
    host_s: float

    @property
    def seconds(self) -> float:
        return sum(self.device_s.values()) + self.host_s


@dataclass(frozen=True)
class ComparedPass:
    """A recorded pass beside the twin's seconds, and beside those of a twin fitted to the other passes."""

    recorded: RecordedPass
    batch: Batch
    twin_s: float
    left_out_s: float
    """nan: there is no other pass of its kind."""


@dataclass(frozen=True)
class Comparison:
    passes: tuple[ComparedPass, ...]
    unknown: int
    """Number of passes whose batch is not known."""
    fitted: Fitted


def recorded_passes(host: pd.DataFrame, work: pd.DataFrame, gaps: pd.DataFrame) -> list[RecordedPass]:
    """Return the passes of a trace's host events, work and gaps, in their order. Without ranges that name batches, they
    are the steps. Raises InputError for a trace without kernels."""
    kernels = work[work["category"].isin(("kernel", "memcpy", "memset"))]
    if kernels.empty:
        raise InputError("The trace has no kernels.", "A pass of an engine on a GPU has some.", "Record the GPU too.")
    of_work, batches = _numbered(host, work)
    families = pd.Series([_family(str(name)) for name in kernels["name"]], kernels.index)
    own = of_work[kernels.index]
    device = kernels["busy_ns"].groupby([own, families]).sum()
    waits = gaps[(gaps["cause"] != "launch") | (gaps["duration_ns"] < _LAUNCHED_LONG_AGO_NS)]
    waits = waits[waits["work"] >= 0]
    idle = waits["duration_ns"].groupby(of_work[waits["work"].to_numpy()]).sum()
    return [
        RecordedPass(
            batches.get(number),
            {str(k): v * 1e-9 for k, v in device[number].items()},
            float(idle.get(number, 0)) * 1e-9,
        )
        for number in sorted(set(own[own >= 0].tolist()))
    ]


def _numbered(host: pd.DataFrame, work: pd.DataFrame) -> tuple[np.ndarray, dict[int, Batch | None]]:
    """Return the pass of each piece of work (-1: none), and the batch of each pass."""
    user = UserRanges(host)
    rows, names = user.rows_of(serving_phase), user.names_of(serving_phase)
    starts = host["start_ns"].to_numpy()[rows]
    ends = starts + host["duration_ns"].to_numpy()[rows]
    outer = [i for i in np.argsort(starts, kind="stable") if not ((starts < starts[i]) & (ends >= ends[i])).any()]
    if not outer:
        return work["step"].to_numpy(), {}
    launch = work["launch"].to_numpy()
    at = np.where(launch >= 0, host["start_ns"].to_numpy()[np.maximum(launch, 0)], -1)
    number = np.searchsorted(starts[outer], at, side="right") - 1
    return np.where(launch >= 0, number, -1), {place: batch(names[row]) for place, row in enumerate(outer)}


def _family(name: str) -> str:
    if is_communication(pd.Series([name]))[0]:
        return "sums"
    if _EXPERTS.search(name):
        return "experts"
    return {"attention": "attention", "GEMMs": "weights"}.get(named_kind(name), "others")


def compared(of: Deployment, passes: Sequence[RecordedPass], usual: Batch) -> Comparison:
    """Return the twin beside each pass, and fitted to all. `usual` is the batch of passes that do not say theirs.

    Raises InputError if no pass can be compared.
    """
    usable = [(each, known) for each in passes if (known := each.batch or _usual(each, passes, usual))]
    if not usable:
        what = "No pass of the trace says what it works on."
        why = "It has no ranges that name batches, and too few steps to tell which are usual."
        raise InputError(what, why, "Record an engine that names batches: vLLM or SGLang with their profilers.")
    times = PassTimes(of)
    splits = [twin(times, known, usual) for _, known in usable]
    rows = [
        ComparedPass(each, known, sum(split.values()), _left_out(of, usable, splits, place, usual))
        for place, ((each, known), split) in enumerate(zip(usable, splits, strict=True))
    ]
    fitted = _fitted([each for each, _ in usable], [known for _, known in usable], splits)
    return Comparison(tuple(rows), len(passes) - len(usable), fitted)


def _usual(each: RecordedPass, passes: Sequence[RecordedPass], usual: Batch) -> Batch | None:
    """Return the usual batch for a pass whose device time is; passes that take much longer hold prompts of any size."""
    if len(passes) < _ALIKE:
        return None
    middle = median(sum(one.device_s.values()) for one in passes)
    return usual if middle / _LARGE <= sum(each.device_s.values()) <= middle * _LARGE else None


def twin(times: PassTimes, batch: Batch, usual: Batch) -> dict[str, float]:
    """Return the twin's seconds of a pass by part."""
    context = batch.keys / batch.decoding if batch.keys else usual.keys / max(1, usual.decoding)
    count = max(1, batch.prompts)
    chunk = Chunk(batch.prompt_tokens // count, (batch.prompt_keys - batch.prompt_tokens) // count)
    return times.split(batch.decoding, context, [chunk] * batch.prompts)


def _left_out(
    of: Deployment,
    usable: Sequence[tuple[RecordedPass, Batch]],
    splits: Sequence[Mapping[str, float]],
    place: int,
    usual: Batch,
) -> float:
    """Return the seconds of a pass by a twin that is fitted to the other passes, if some are of its kind."""
    known = usable[place][1]
    others = [i for i in range(len(usable)) if i != place]
    if not any(bool(usable[i][1].prompts) == bool(known.prompts) for i in others):
        return float("nan")
    fitted = _fitted([usable[i][0] for i in others], [usable[i][1] for i in others], [splits[i] for i in others])
    return sum(twin(PassTimes(replace(of, fitted=fitted)), known, usual).values())


def _fitted(passes: Sequence[RecordedPass], batches: Sequence[Batch], splits: Sequence[Mapping[str, float]]) -> Fitted:
    """Return the median ratio of recorded and modelled time for each part, and the median time of the host."""
    factors = {}
    for family, parts in _families(passes).items():
        for part in parts:
            ratios = [
                each.device_s.get(family, 0.0) / whole
                for each, split in zip(passes, splits, strict=True)
                if (whole := sum(split[name] for name in parts)) and split[part] > _MAIN * whole
            ]
            factors[part] = float(np.clip(median(ratios), *_BOUNDS)) if ratios and median(ratios) else 1.0
    host = {
        bool(kind): median(waits)
        for kind in (False, True)
        if (waits := [each.host_s for each, batch in zip(passes, batches, strict=True) if bool(batch.prompts) == kind])
    }
    either = max(host.values())
    return Fitted(factors, host.get(False, either), host.get(True, either))


def _families(passes: Sequence[RecordedPass]) -> dict[str, tuple[str, ...]]:
    """Return the families; products of experts belong to the weights if no kernel's name says that it is of experts."""
    if any(each.device_s.get("experts") for each in passes):
        return FAMILIES
    joined = {name: parts for name, parts in FAMILIES.items() if name != "experts"}
    return joined | {"weights": (*FAMILIES["weights"], "experts")}
