"""Assigns the counters that Nsight Compute measured in marked op calls to the ops that launched the kernels."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

HEAD = ("label", "op", "inputs", "elements", "kernels", "flops", "read_bytes", "write_bytes")
_SPIN = "spin_kernel"


class Launcher(NamedTuple):
    """The op call that launched a kernel."""

    number: int
    """Tells equal calls apart."""
    op: str
    inputs: str
    elements: str


def parted(counters: pd.DataFrame) -> list[pd.DataFrame]:
    """Split the launches at spin kernels (torch.cuda._sleep), leaving out those and what comes before the first."""
    spins = counters["name"].astype(str).str.contains(_SPIN)
    part = spins.cumsum().to_numpy()
    return [counters[(part == number) & ~spins] for number in range(1, part.max(initial=0) + 1)]


def rows(launchers: Mapping[str, Sequence[Launcher]], counters: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield one row per op call, from the launchers of each label's kernels in order and COUNTERS of the same calls.

    FLOPs are those of the single and double precision and the tensor pipes: compilers set registers with
    half-precision instructions. A call that launched other kernels while it was measured is named and left out. Raises
    ValueError when other calls were measured than recorded.
    """
    parts = parted(counters)
    if len(parts) != len(launchers):
        raise ValueError(f"{len(parts)} calls were measured, {len(launchers)} recorded")
    for (label, known), part in zip(launchers.items(), parts, strict=True):
        if len(known) != len(part):
            print(f"{label}: {len(part)} kernels were measured, {len(known)} recorded", flush=True)
            continue
        pipes = part[["fp32_flops", "fp64_flops", "tensor_flops"]].sum(axis=1, skipna=False)
        measured = pd.DataFrame({"kernels": 1, "flops": pipes, **part[["dram_read_bytes", "dram_write_bytes"]]})
        for launcher, counts in measured.groupby(pd.Index(known, tupleize_cols=False), sort=False):
            yield label, launcher.op, launcher.inputs, launcher.elements, *map(int, counts.sum())
