"""Puts the kernels that `tracekit fuse` writes into a subject's model."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from tracekit.analyzers import hardware
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.fusion.plan import plan
from tracekit.fusion import run_kernels
from tracekit.fusion.run_graph import graph_of_settings
from tracekit.subjects.subject import Subject

_BY_NAME = "Its step is not known: name a model, as for `profile --model`, or apply the files of `fuse` yourself."


def with_written_kernels(subject: Subject, numbers: Sequence[int]) -> Subject:
    """Return the subject with the kernels of these rows of its plan; (): of all rows that have one.

    Raises InputError for a model of the user's own, for a run without a GPU, or for rows without a kernel.
    """
    settings = subject.settings
    gpu = hardware.selected(settings.gpu, settings.gpu_file)
    if subject.inputs is not None or gpu is None:
        why = _BY_NAME if subject.inputs is not None else "The run names no GPU: repeat it with --gpu."
        raise InputError("No fused kernels can be written for it.", why)
    rows = list(enumerate(plan(graph_of_settings(settings, gpu), gpu), 1))
    wanted = [(number, row) for number, row in rows if number in numbers or (not numbers and row.template)]
    refused = [f"{number}: {why}" for number, row in wanted if (why := run_kernels.obstacle(row, gpu))]
    if refused or len(wanted) < len(numbers) or not wanted:
        raise InputError(
            "These groups have no kernel.",
            "; ".join(refused) or "The plan has no such group.",
            "See: tracekit fuse RUN",
        )
    folder = Path(mkdtemp(prefix="tracekit-kernels-"))  # Triton reads the source again when it compiles
    changed = subject.with_twin()
    paths = [run_kernels.write_source(number, row, gpu, folder) for number, row in wanted]
    run_kernels.put_in(changed.model, paths)
    return changed
