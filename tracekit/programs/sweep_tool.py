"""The sweep of the tools, for a model that is bundled or lies in the roots, and a grid that is short enough to wait
for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracekit.analyzers.errors import InputError
from tracekit.programs.roots import Roots

_MOST_POINTS = 48


def sweep(
    roots: Roots,
    model: str,
    gpus: Sequence[str],
    batch_sizes: Sequence[int],
    seq_lens: Sequence[int],
    apply: Sequence[str],
    workload: str,
) -> dict[str, Any]:
    """Return the crossovers in words, and the points. Raises TracekitError for anything that cannot be modelled."""
    from tracekit.capture.workloads import WORKLOADS
    from tracekit.reports.public import plain_rows, public
    from tracekit.reports.sweep_words import basis, sentences
    from tracekit.sweeps import run_sweep

    if workload not in WORKLOADS:
        raise InputError(f"There is no workload {workload!r}.", f"Workloads: {', '.join(WORKLOADS)}.", "Name one.")
    _check_numbers(batch_sizes, seq_lens)
    points = len(gpus) * len(batch_sizes) * len(seq_lens) * (len({*apply} - {"none"}) + 1)
    if points > _MOST_POINTS:
        raise InputError(f"The sweep has {points:,} points.", f"It may have {_MOST_POINTS}.", "Leave some values out.")
    rows = run_sweep.sweep(
        _model(roots, model),
        gpu=gpus,
        batch_size=batch_sizes,
        seq_len=seq_lens,
        apply=apply or run_sweep.APPLY[:1],
        workload=workload,
    )
    return {
        "model": model,
        "workload": workload,
        "basis": basis(rows),
        "crossovers": sentences(rows),
        "points": plain_rows(public(rows)),
    }


def _check_numbers(batch_sizes: Sequence[int], seq_lens: Sequence[int]) -> None:
    if any(batch < 1 for batch in batch_sizes) or any(length < 0 for length in seq_lens):
        raise InputError("The sweep has an impossible size.", "Batch sizes begin at 1.", "Name other sizes.")


def _model(roots: Roots, model: str) -> str:
    """Return a model that needs neither the network nor a file outside the roots."""
    from tracekit.capture.models import bundled

    if any(model.lower() in spec.names for spec in bundled()):
        return model
    folder: Path | None = roots.path(model) if model else None
    if folder is None or not (folder / "config.json").is_file():
        raise InputError(
            f"There is no model {model!r}.",
            "It is not bundled, and no folder with a config.json inside the folders of this server.",
            f"Name one of {', '.join(spec.name for spec in bundled()[:12])}, ...",
        )
    return str(folder)
