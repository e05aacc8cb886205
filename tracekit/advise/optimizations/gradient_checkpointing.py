"""Gradient checkpointing: the backward pass runs each block's forward pass again instead of keeping its activations."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from tracekit.advise.optimization import Optimization, refused
from tracekit.advise.reasons import of_step, say, share_of
from tracekit.analyzers.core import outcomes
from tracekit.analyzers.predict import (
    Baseline,
    OpList,
    Outcome,
    joined,
    pick,
    plain_launch_ns,
    saved_bytes,
    saved_counts,
)
from tracekit.analyzers.results import Memory, Statements

if TYPE_CHECKING:
    from tracekit.apply import Subject

_KNOWN = outcomes(__file__)
WRAPPING = _KNOWN["wrapping"]
"""Host time of checkpointing one block (saving and restoring the random state, leaving and entering autograd), in plain
launches."""
HOOKS = _KNOWN["hooks"]
"""Host time of one tensor that a block saves, in plain launches: it is packed twice and unpacked once, in Python."""
SHORT = 0.85
"""Fraction of the GPU's memory above which a step leaves no room for a longer sequence or a larger batch."""
_MOST = 0.5
"""Fraction of a step's memory that must be activations for checkpointing to free much memory."""


class GradientCheckpointing(Optimization):
    """The backward pass runs each block's forward again instead of keeping its activations.

    Kernel time is 1.25 to 1.33 times as long where the backward pass takes twice as long as the forward pass. Host time
    grows by four plain launches per block and by 4.7 (3.2 to 6.9) per saved tensor, because each passes through Python
    (measured on an H200 for host-bound steps: 0.45 to 0.72 times as fast). Saved are only the input of each block and
    activations outside of blocks; the peak is then at the loss, or in the block that runs again (GPT-2, batch 16, 512
    tokens, fp32: 2.0 GB kept instead of 10.3, and 3.3 GB for the loss).

    *Hurts* always: it takes time and makes room for a larger batch or longer sequences. It is recommended where a step
    holds more than 0.85 of the GPU's memory and most of that is activations.
    """

    id = "gradient-checkpointing"

    def objection(self, base: Baseline) -> str | None:
        if base.blocks.empty:
            return "The run does not train repeated blocks."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        again = base.ops[base.ops.positions(base.blocks.index)]
        saved = saved_counts(base.ops).reindex(again.index, fill_value=0)
        added = pick(HOOKS, outcome) * saved + pick(WRAPPING, outcome) * base.blocks.nunique() / len(again)
        again = again.assign(phase="backward", host_ns=again.host_ns + added.to_numpy() * plain_launch_ns(base))
        start = int(np.flatnonzero(base.ops.phase == "backward")[0])
        return joined(base.ops[:start], again, base.ops[start:]).renumbered()

    def reason(self, base: Baseline) -> Statements:
        freed = of_step("freed", "share", 1 - _kept(base)[0])
        again = share_of(base, np.isin(base.ops.index, base.blocks.index))
        short = (say("memory-is-short"),) if self.needed(base) else ()
        return (say("gradient-checkpointing", again, freed), *short)

    def evidence(self, base: Baseline) -> Statements:
        capture = base.source.capture
        if capture is None or not capture.peak_memory_bytes:
            return ()
        held = of_step("held", "bytes", capture.peak_memory_bytes)
        return (say("memory-of-a-step", held, of_step("memory", "bytes", base.gpu.memory_bytes)),)

    def apply(self, subject: "Subject") -> "Subject":
        if not subject.training:
            raise refused(self, "The workload does not train.")
        changed = subject.with_twin()
        model: Any = changed.model
        if not hasattr(model, "gradient_checkpointing_enable"):
            raise refused(self, "It is not a transformers model: use torch.utils.checkpoint in its forward.")
        model.gradient_checkpointing_enable()
        return changed

    def needed(self, base: Baseline) -> bool:
        """Return whether memory is short, and most of it holds activations."""
        memory = base.memory
        if memory is None or memory.peak < SHORT * base.gpu.memory_bytes:
            return False
        return memory.activations > _MOST * memory.peak

    def memory(self, base: Baseline, before: Memory) -> Memory:
        kept, again = _kept(base)
        loss = max(before.loss, round(before.activations * again))
        return replace(before, activations=round(before.activations * kept), loss=loss)


def _kept(base: Baseline) -> tuple[float, float]:
    """Return two fractions of the activations that the forward pass keeps.

    The first is what checkpointing keeps: each block's input, and everything outside of blocks. The second is what the
    last block adds while it runs again: the activations of the largest block, minus those after the blocks, which are
    already freed.
    """
    saved = saved_bytes(base.ops)
    forward = base.ops[base.ops.positions(saved.index)]
    block = base.blocks.reindex(saved.index)
    written = pd.Series([cost.write_bytes for cost in forward.cost], index=forward.index, dtype=float)
    inputs = written.groupby(block).last()
    behind = saved[block.bfill().isna()].sum()
    largest = (saved.groupby(block).sum() - inputs).max()
    total = max(float(saved.sum()), 1.0)
    return min(1.0, float(saved[block.isna()].sum() + inputs.sum()) / total), max(0.0, float(largest - behind)) / total
