"""The interface of an optimization: whether it applies to a run, and what it changes."""

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec.structs import replace

from tracekit.analyzers.core import InputError, TracekitError, toml_table
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Outside, remembered
from tracekit.analyzers.results import Costs, Memory, Statements
from tracekit.analyzers.trace import CaptureInfo

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
"""Serving engines, which run models themselves."""


FLAG, LINES, REWRITE = 1.0, 2.0, 4.0
"""Effort of an argument or a single call, of some lines that have to be checked, and of a change of the program."""
_TORCH = re.compile(r"^\w+::\w+$|\bat::|torch|triton|c10::|Backward\d")
_LITTLE = 0.5
"""Fraction of the kernel time with known shapes and types below which an objection about shapes or types is not
meaningful."""
_UNDESCRIBED = "The trace does not record shapes and types of most of its work."
_BY_HAND = "Change the script, record it again, and measure with: tracekit compare BEFORE AFTER."


class Optimization(ABC):
    """An optimization. Its prediction is the simulation of the op list that `transform` returns.

    A subclass may say its title, aliases, costs, condition, caveats, switches and recipe in the section of its id of an
    `optimizations.toml` beside its file.
    """

    id: str
    argument: str = ""
    """Text after the id and a colon."""
    title: str
    aliases: tuple[str, ...] = ()
    """Alternative, shorter ids."""
    caveats: tuple[str, ...] = ()
    sentences: Mapping[str, str] = {}
    """Sentences of its reasons by their kind, if it is a plug-in; tracekit's own are in reports/sentences.toml."""
    costs: Costs | None = None
    """Its costs in memory, accuracy and effort."""
    work_factor: float = 1.0
    """Work of a step afterwards, relative to the baseline (see `work`)."""
    of_a_pass: bool = False
    """Whether its op list has the costs of a whole pass, but the time of a part of a pass, so that no rates follow from
    them."""
    throughput: bool = False
    """Whether it makes a step longer and do more work, which never counts as a gain in latency."""
    condition: str = ""
    """A requirement that the run does not have, such as a draft model. With one, it is in a plan only as the single
    step."""
    for_training: bool = True
    """Whether it can be applied to a training step."""
    recipe: str = ""
    """Code to copy, where it is the same for every run."""
    switches: Mapping[str, str] = {}
    """Serving engine (vllm, sglang) -> how to enable it there. An engine that is missing has no such switch."""
    contains: tuple[str, ...] = ()
    """Ids of optimizations that it includes. It is recommended only if it promises notably more than each of them."""
    brings: tuple[str, ...] = ()
    """Ids of optimizations that it needs, and includes where the run lacks them. One that pays alone comes first."""
    effort: float = LINES
    """What it costs a person to try it: FLAG, LINES or REWRITE."""
    fixes_mistake: bool = False
    """Whether it removes work that the script does not need. Then its expected gain decides, and it comes before
    changes of the workload."""
    keeps_kernels: bool = False
    """Whether it changes only what the host does, or when: no kernel takes less time."""
    needless: bool = False
    """Whether the whole work that it removes is of no use. Then it comes before everything that makes work faster."""
    suspected: bool = False
    """Whether a trace does not show how much work it removes. Then what it shows to be of no use comes before."""
    needs_gpu: bool = True
    """Whether its prediction needs the rates of the GPU that ran the step."""
    needs_torch: bool = True
    """Whether it changes how PyTorch runs the model."""
    reads_costs: bool = False
    """Whether its objection is about shapes and types of ops, which a trace may lack."""
    after: tuple[str, ...] = ()
    """Ids of fixes of mistakes that come before it in a plan, independent of their gain."""
    excludes: Mapping[str, str] = {}
    """Ids of optimizations that it cannot be combined with -> the reason. One of the two has to name the other."""

    def __init_subclass__(cls) -> None:
        """Give a class with an id of its own what `optimizations.toml` beside its file says of it."""
        super().__init_subclass__()
        if "id" in vars(cls):
            file = Path(sys.modules[cls.__module__].__file__ or "")
            for name, value in _said(file.with_name("optimizations.toml")).get(cls.id, {}).items():
                setattr(cls, name, value)

    @property
    def description(self) -> str:
        """What it does to a run, when it is refused, and where its numbers come from."""
        return type(self).__doc__ or ""

    @property
    def name(self) -> str:
        """The id with its argument, as users write it."""
        return f"{self.id}:{self.argument}" if self.argument else self.id

    @abstractmethod
    def objection(self, base: Baseline) -> str | None:
        """Return why it cannot be applied to this run; None if it can.

        A slowdown is not an objection, but a prediction.
        """

    def obstacle(self, base: Baseline) -> str | None:
        """Return why it cannot be applied to this run: the serving engine, training, or its own objection."""
        if self.needs_gpu and not base.gpu_is_known:
            return "Its gain depends on the GPU, which the trace does not name: name it with --gpu."
        if self.needs_torch and not runs_torch(base):
            return "The trace contains no op of PyTorch."
        runtime = base.source.runtime
        if runtime in ENGINES and runtime not in self.switches:
            return f"{ENGINES[runtime]} runs the model and has no switch for it."
        if base.trains and not self.for_training:
            return "It is for inference: the run trains the model."
        objection = self.objection(base)
        return _UNDESCRIBED if objection and self.reads_costs and _described(base) < _LITTLE else objection

    def how(self, base: Baseline) -> str:
        """Return code or a command to copy: the serving engine's switch, or `how_to`."""
        return self.switches.get(base.source.runtime) or self.how_to(base)

    def terms(self, base: Baseline) -> dict[str, Any]:
        """Return the fields of a recommendation that say how to apply it to a run, and what that costs."""
        return {
            "how_to": self.how(base),
            "caveats": (*self.caveats, *self.notes(base)),
            "costs": self.costs,
            "throughput": self.throughput,
            "condition": self.condition,
        }

    @abstractmethod
    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        """Return the op list (OP_LIST) after the optimization."""

    @abstractmethod
    def reason(self, base: Baseline) -> Statements:
        """Return why this run gains from it. reports/words/wording.py has the words for each kind of statement."""

    def how_to(self, base: Baseline) -> str:
        """Return code or a command to copy; by default the recipe."""
        return self.recipe

    @abstractmethod
    def apply(self, subject: "Subject") -> "Subject":
        """Return a run's model with the optimization, to be measured beside the one without it.

        Raises TracekitError if that is not possible here.
        """

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        """Return the changes around a script, whose code stays as it is, with the optimization.

        Raises TracekitError if it cannot be applied from outside.
        """
        raise refused(self, "It changes the code inside the script.", by_hand=True)

    def evidence(self, base: Baseline) -> Statements:
        """Return the evidence for it in the trace."""
        return ()

    def notes(self, base: Baseline) -> tuple[str, ...]:
        """Return caveats of this run only: what prevents the gain, and how to remove that."""
        return ()

    def memory(self, base: Baseline, before: Memory) -> Memory:
        """Return the device memory of a step after the optimization."""
        return before

    def needed(self, base: Baseline) -> bool:
        """Return whether the run is so short of memory that the optimization is recommended even if it costs time."""
        return False

    def unsuited(self, base: Baseline) -> Statements:
        """Return why it is not recommended for this run, although it can be applied; empty without a reason."""
        return ()

    def work(self, base: Baseline) -> float:
        """Return the work of a step afterwards, relative to the baseline. The speed-up is that of the work."""
        return self.work_factor

    def settings(self, base: Baseline, capture: CaptureInfo) -> CaptureInfo:
        """Return the settings that a capture of the optimized run would have, such as its dtype and batch."""
        return capture

    def batch_after(self, base: Baseline) -> int:
        """Return the number of sequences in a step after the optimization; 0 if unknown."""
        return base.batch_size

    def outside(self, base: Baseline, outcome: Outcome) -> Outside:
        """Return the host's work outside the model after the optimization. By default it grows with a step's work."""
        return base.outside.scaled(max(1.0, self.work(base)))

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        """Return the run after the optimization, which is simulated, and to which another optimization may be
        applied."""
        memory, capture = _memory_after(self, base), base.source.capture
        after = replace(
            base,
            ops=self.transform(base, outcome),
            batch_by_shapes=self.batch_after(base),
            outside=self.outside(base, outcome),
            predicted_memory=memory,
            origin=base.origin or base,
        )
        if capture is None:
            return after
        changed = self.settings(base, capture)
        if memory and capture.peak_memory_bytes:
            sizes = {"weight_bytes": memory.weights, "peak_memory_bytes": memory.peak}
            changed = msgspec.structs.replace(changed, **sizes)
        return replace(after, source=replace(base.source, capture=changed))

    def expected_speedup(self, base: Baseline) -> float:
        """Return the expected speed-up of one step: latency before over latency after, times the work."""
        return self.work(base) * base.latency_ns / self.applied(base, "expected").latency_ns

    def with_argument(self, argument: str) -> Self:
        """Return this optimization with the text after its id and a colon.

        Raises InputError for an invalid argument.
        """
        raise InputError(f"{self.id} takes no argument.", f"It was given {argument!r}.", f"Write: {self.id}")


@cache
def _said(file: Path) -> dict[str, dict[str, Any]]:
    """Return what optimizations say of themselves, by id; empty without a file."""
    rows = toml_table(file) if file.is_file() else {}
    for row in rows.values():
        row.update({name: tuple(row[name]) for name in ("aliases", "caveats") if name in row})
        row.update({"costs": Costs(*row["costs"])} if "costs" in row else {})
    return rows


@remembered
def runs_torch(base: Baseline) -> bool:
    """Return whether an op of the step is one of PyTorch."""
    return any(map(_TORCH.search, {*base.ops.name, *base.ops.call}))


def _described(base: Baseline) -> float:
    """Return the fraction of the kernel time whose ops have known shapes and types, 0 to 1."""
    known = base.ops.kernel_ns[base.ops.costed].sum()
    return float(known / base.busy_ns) if base.busy_ns else 0.0


@remembered
def _memory_after(optimization: Optimization, base: Baseline) -> Memory | None:
    return optimization.memory(base, base.memory) if base.memory else None


@remembered
def run_after(optimization: Optimization, base: Baseline, outcome: Outcome) -> Baseline:
    """Return `optimization.applied(base, outcome)`, computed once for all callers."""
    return optimization.applied(base, outcome)


def refused(optimization: Optimization, why: str, *, by_hand: bool = False) -> TracekitError:
    """Return the error that `apply` and `change_script` raise. What is done by hand, as every fix of a script's
    mistake, is measured by two traces of the script."""
    hint = _BY_HAND if by_hand or optimization.fixes_mistake else ""
    return TracekitError(f"{optimization.title} cannot be applied here.", why, hint)
