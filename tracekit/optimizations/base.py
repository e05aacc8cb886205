"""What every optimization is: does it apply, and what would it give."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import msgspec
import pandas as pd

from tracekit.analyzers.capture_info import CaptureInfo
from tracekit.analyzers.errors import InputError, TracekitError
from tracekit.analyzers.evidence import Statements
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.memory import Memory
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.analyzers.transforms.plain_launch import with_plain_launch
from tracekit.subjects.subject import Subject

ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
"""Serving engines that run models by themselves."""


class Optimization(ABC):
    """One optimization. Its transform of the op list, simulated again, is its prediction."""

    id: str
    argument: str = ""
    """What followed the id and a colon."""
    title: str
    aliases: tuple[str, ...] = ()
    """Shorter ids that people may write."""
    caveats: tuple[str, ...] = ()
    costs: Costs | None = None
    """What it costs in memory, accuracy and effort."""
    work_factor: float = 1.0
    """How many times the baseline's work one step then does (see `work`)."""
    of_a_pass: bool = False
    """Its op list holds the costs of a whole pass and the time of a part of it: no rates follow from them."""
    throughput: bool = False
    """It makes a step longer and does more in it: never counted as a gain in latency."""
    condition: str = ""
    """What it needs that the run does not have, such as a draft model: with one, it is in a plan only by itself."""
    for_training: bool = True
    """Whether it can be done to a training step."""
    switches: Mapping[str, str] = {}
    """How a serving engine (vllm, sglang) is told to do it; an engine that is missing cannot be told."""
    contains: str = ""
    """Id of an optimization that is part of it; recommended is only what promises more than that part alone."""
    excludes: Mapping[str, str] = {}
    """Ids of optimizations that it cannot be combined with, and why; naming one of the two is enough."""

    @property
    def name(self) -> str:
        """The id with its argument, as people write it."""
        return f"{self.id}:{self.argument}" if self.argument else self.id

    @abstractmethod
    def objection(self, base: Baseline) -> str | None:
        """Why it cannot be done to this run; None when it can. That it loses is no objection: that is predicted."""

    def obstacle(self, base: Baseline) -> str | None:
        """Why it cannot be done to this run: what runs the model rules it out, or its own objection."""
        runtime = base.source.runtime
        if runtime in ENGINES and runtime not in self.switches:
            return f"{ENGINES[runtime]} runs the model and has no switch for it."
        if base.trains and not self.for_training:
            return "It is for inference: the run trains the model."
        return self.objection(base)

    def how(self, base: Baseline) -> str:
        """Code or a command to copy, for what runs the model: the serving engine's switch, or `how_to`."""
        return self.switches.get(base.source.runtime) or self.how_to(base)

    @abstractmethod
    def transform(self, base: Baseline, outcome: Outcome) -> pd.DataFrame:
        """The op list after the optimization (OP_LIST)."""

    @abstractmethod
    def reason(self, base: Baseline) -> Statements:
        """Why this run gains from it. The words of each kind of statement are in reports/sentences.py."""

    @abstractmethod
    def how_to(self, base: Baseline) -> str:
        """Code or a command to copy."""

    @abstractmethod
    def apply(self, subject: Subject) -> Subject:
        """The model of a run with the optimization done to it, to be measured beside the one without.

        Raises TracekitError when that is not possible here.
        """

    def evidence(self, base: Baseline) -> Statements:
        """What in the trace led to it."""
        return ()

    def notes(self, base: Baseline) -> tuple[str, ...]:
        """Caveats of this run alone: what keeps it from its gain, and how to remove that."""
        return ()

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """What a step holds in device memory after the optimization."""
        return before

    def needed(self, base: Baseline) -> bool:
        """Whether the run is so short of what it saves that it is recommended even where it costs time."""
        return False

    def unsuited(self, base: Baseline) -> Statements:
        """Why it is not recommended for this run, although it can be done; empty: nothing speaks against it."""
        return ()

    def work(self, base: Baseline) -> float:
        """How many times the baseline's work one step then does; the speed-up is that of the work."""
        return self.work_factor

    def settings(self, base: Baseline, capture: CaptureInfo) -> CaptureInfo:
        """What a capture of the optimized run would say of its settings: its dtype, its batch."""
        return capture

    def batch_after(self, base: Baseline) -> int:
        """Sequences of a step after the optimization; 0: not known."""
        return base.batch_size

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        """The run as it is after the optimization: what is simulated, and what a further one starts from."""
        base = with_plain_launch(base)
        after = replace(
            base,
            ops=self.transform(base, outcome),
            batch_by_shapes=self.batch_after(base),
            outside=base.outside.scaled(max(1.0, self.work(base))),
        )
        capture = base.source.capture
        if capture is None:
            return after
        changed = self.settings(base, capture)
        memory = self.memory(base, base.memory) if base.memory else None
        if memory:
            sizes = {"weight_bytes": memory.weights, "peak_memory_bytes": memory.peak}
            changed = msgspec.structs.replace(changed, **sizes)
        return replace(after, source=replace(base.source, capture=changed), predicted_memory=memory)

    def expected_speedup(self, base: Baseline) -> float:
        """Speed-up of one step as expected: the latency before over the latency after, times the work done."""
        return self.work(base) * base.latency_ns / self.applied(base, "expected").latency_ns

    def with_argument(self, argument: str) -> Self:
        """This optimization with what followed its id and a colon. Raises InputError when it takes nothing such."""
        raise InputError(f"{self.id} takes no argument.", f"It was given {argument!r}.", f"Write: {self.id}")


def refused(optimization: Optimization, why: str) -> TracekitError:
    """What `apply` raises."""
    return TracekitError(f"{optimization.title} cannot be applied here.", why)
