"""Base class of optimizations that remove host work outside the model.

A simulated step without that work is the bound.
"""

from abc import abstractmethod

from tracekit.analyzers.evidence import Evidence, Statement, Statements, of_step, say
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.op_columns import OpList
from tracekit.analyzers.prediction.outside import Outside
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.optimizations.base import Optimization, refused
from tracekit.subjects.subject import Subject

NOTABLE = 0.01
"""Host work below this fraction of a step is ignored."""
_NAMED = 3


class LessHostWork(Optimization):
    """Reduces the host work of some causes; at best it disappears, as far as the critical path allows."""

    fixes_mistake = True
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

    def reason(self, base: Baseline) -> Statements:
        causes = self.reduced(base)
        time = base.outside_ns(causes)
        share = min(time / max(base.unprofiled_ns, 1.0), 1.0)
        spent = say(self.id, of_step("time", "outside_ns", time), of_step("share", "outside_share", share))
        return (spent, *(most_of_it(base, causes) if self.names_function else ()))

    def evidence(self, base: Baseline) -> Statements:
        return named_causes(base, self.reduced(base))

    def apply(self, subject: Subject) -> Subject:
        raise refused(self, "It is a change of the code around the model, which the advice shows.")


def most_of_it(base: Baseline, causes: tuple[str, ...]) -> Statements:
    """Return the function that takes at least half of the time of these causes; empty if none does."""
    rows = base.host_causes[base.host_causes["cause"].isin(causes)]
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
