"""Replaces chains of small kernels with fused kernels, from torch if it has them, else from liger-kernel."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tracekit.analyzers.core import InputError, TracekitError
from tracekit.analyzers.cost import GPU, hardware, resolve
from tracekit.analyzers.fuse import BY_HAND, WRITTEN_OUT, Graph, Planned, plan, to_bytes
from tracekit.apply.subject import Subject
from tracekit.capture import OwnModel
from tracekit.fuse import graph_of_module, graph_of_settings, obstacle, run_kernels
from tracekit.reports.words import write_atomically
from tracekit.run import GRAPH, environment, first_line, kernels_json, require

if TYPE_CHECKING:
    from torch import nn


def with_fused_kernels(subject: Subject) -> Subject:
    """Return the subject with fused activations, norms and gated activations.

    Raises TracekitError if no fused kernel is known for the model.
    """
    changed = subject.with_twin()
    if not _with_torch_gelu(changed.model):
        _with_liger(changed.model)
    return changed


def _with_torch_gelu(model: "nn.Module") -> int:
    """Replace unfused activations with torch.nn.GELU, and return the number of replaced ones."""
    torch, replaced = require("torch"), 0
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child).__name__ in WRITTEN_OUT:
                setattr(module, name, torch.nn.GELU(approximate="tanh"))
                replaced += 1
    return replaced


def _with_liger(model: Any) -> None:
    patches = require("liger_kernel.transformers.monkey_patch")
    kind = getattr(getattr(model, "config", None), "model_type", "")
    if kind not in patches.MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise TracekitError(
            "No fused kernels are known for this model.", f"liger-kernel does not support {kind or 'it'}."
        )
    with _classes_kept(sys.modules[type(model).__module__]):
        patches._apply_liger_kernel_to_instance(model, rope=False, fused_linear_cross_entropy=False)


@contextmanager
def _classes_kept(module: Any) -> Iterator[None]:
    """Undo the changes that liger-kernel makes to the model's Python module, which would affect models built later."""
    before = dict(vars(module))
    try:
        yield
    finally:
        vars(module).update(before)


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
    timed = kernels_json.read_kernel_times(subject.settings.folder, gpu).kernels if subject.inputs is None else {}
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
