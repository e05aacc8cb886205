"""Replays one CUDA graph of a whole training step."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tracekit.advise.optimization import LINES, refused
from tracekit.advise.optimizations.cuda_graphs import CUDAGraphs
from tracekit.analyzers.attribute import is_communication
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import Baseline, Outcome, pick, present

if TYPE_CHECKING:
    from tracekit.apply import ScriptChanges, Subject

ELSEWHERE = outcomes(__file__)["elsewhere"]
"""Fraction of the host time between launches of no known phase that remains beside the graph."""


class TrainingGraph(CUDAGraphs):
    """One replay of a CUDA graph of forward pass, backward pass and optimizer.

    The prediction is that of `cuda-graphs`: all host time of the step becomes one replay. So does host work between the
    launches of forward pass, backward pass and optimizer; of that elsewhere, half (none to all) remains. The inputs are
    copied into the tensors that the graph reads. The optimizer keeps its state on the device (`capturable=True`).

    *First predictions*, on an H200, in which work between launches remained: 2.5 to 4.4 for Qwen2.5-0.5B in bf16
    (measured: 3.7), and 0.95 to 1.7 for BERT-base in fp32 (measured beside other work: 1.6; alone: 1.9).

    *Refused* where `cuda-graphs` is, in inference, and where GPUs communicate within the step.
    """

    id = "training-graph"
    effort = LINES
    excludes: Mapping[str, str] = {"cuda-graphs": "it is the same graph.", "max-autotune": "it records graphs, too."}

    def not_of_this_workload(self, base: Baseline) -> str:
        if not base.trains:
            return "The run does not train: see cuda-graphs."
        together = (present(base.ops.message) | is_communication(base.ops.name)).any()
        return "A step in which GPUs communicate is recorded in parts, by make_graphed_callables." if together else ""

    def other_ns(self, base: Baseline, outcome: Outcome) -> float:
        return pick(ELSEWHERE, outcome) * float(base.other_host[base.ops.phase == ""].sum())

    def change_script(self, changes: "ScriptChanges") -> "ScriptChanges":
        raise refused(self, "It changes the loop of the script.", by_hand=True)

    def apply(self, subject: "Subject") -> "Subject":
        if not subject.on_cuda or not subject.training:
            raise refused(self, "It records a training step on a CUDA device.")
        if subject.autocast == "fp16":
            raise refused(self, "The gradient scaler reads a value back in each step.")
        return replace(subject, graphs=True).with_own_weights()
