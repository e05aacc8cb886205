"""Puts the kernels that `tracekit fuse` writes into a subject's model."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware, resolve
from tracekit.analyzers.fuse import BY_HAND, Graph, Planned, plan, to_bytes
from tracekit.apply.subject import Subject
from tracekit.capture import OwnModel
from tracekit.fuse import graph_of_module, graph_of_settings, obstacle, run_kernels
from tracekit.reports.words import write_atomically
from tracekit.run import GRAPH, environment, files, first_line


def with_written_kernels(subject: Subject, numbers: Sequence[int]) -> Subject:
    """Return the subject with the kernels of these rows of its plan; (): of all rows that have a kernel.

    Raises InputError for a run without a GPU, for code that fake tensors cannot run, or for rows without a kernel.
    """
    gpu = _gpu(subject)
    if gpu is None:
        raise InputError("No fused kernels can be written for it.", "The run names no GPU: repeat it with --gpu.")
    rows = list(enumerate(plan(graph_of_subject(subject, gpu), gpu), 1))
    wanted = [(number, row) for number, row in rows if number in numbers or (not numbers and _is_put_in(row))]
    refused = [f"{number}: {why}" for number, row in wanted if (why := obstacle(row, gpu))]
    if refused or len(wanted) < len(numbers) or not wanted:
        raise InputError(
            "These groups have no kernel.",
            "; ".join(refused) or "The plan has no such group.",
            "See: tracekit fuse RUN",
        )
    folder = Path(mkdtemp(prefix="tracekit-kernels-"))  # Triton reads the source again when it compiles
    changed = subject.with_twin()
    timed = files.read_kernel_times(subject.settings.folder, gpu).kernels if subject.inputs is None else {}
    paths = [run_kernels.write_source(number, row, gpu, folder, timed) for number, row in wanted]
    left_out = run_kernels.put_in(changed.model, paths)
    return replace(changed, caveats=(*changed.caveats, *(f"Left out: {each}" for each in left_out)))


def _is_put_in(row: Planned) -> bool:
    return bool(row.template) and row.template not in BY_HAND


def keep_graph(subject: Subject, folder: Path) -> None:
    """Write the graph of the subject's step into a run's folder, if its GPU is known and fake tensors can run it."""
    gpu = _gpu(subject)
    if gpu is not None:
        with suppress(InputError):
            write_atomically(folder / GRAPH, to_bytes(graph_of_subject(subject, gpu)))


def _gpu(subject: Subject) -> GPU | None:
    settings = subject.settings
    named = hardware.selected(settings.gpu, settings.gpu_file)
    return named or (resolve(environment.cuda_state().name) if subject.on_cuda else None)


def graph_of_subject(subject: Subject, gpu: GPU) -> Graph:
    """Return the graph of the subject's step, recorded on fake tensors. Raises InputError if they cannot run it."""
    if subject.inputs is None:
        return graph_of_settings(subject.settings, gpu)
    own = OwnModel(subject.model, dict(subject.inputs))
    try:
        return graph_of_module(own, gpu)
    except Exception as error:  # code that gets tensors without values can raise any exception
        why = f"{type(error).__name__}: {first_line(error)[:120]}"
        raise InputError("Fake tensors cannot run the model, so its graph is unknown.", why) from error
