"""Writes the kernels of a run's plan: checks each, times it if there is a GPU, and reports failures."""

from ast import FunctionDef
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from tracekit.analyzers.core import InputError, TracekitError, counted
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.fuse import BY_HAND, Planned, Timed, TimedKernel, is_generated, plan
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.trace import trace_file
from tracekit.capture import torch_dtype
from tracekit.fuse import pointwise, proof
from tracekit.fuse.catalogue import DTYPES, obstacle
from tracekit.fuse.writing import Written, load, placeholders, text
from tracekit.reports.words import check_writable, percent, write_atomically
from tracekit.run import GRAPH, TRACE, Say, kernels_json, require, silent
from tracekit.version import __version__


@dataclass(frozen=True)
class Result:
    """Result for one row of the plan."""

    number: int
    planned: Planned
    path: Path | None = None
    checks: int = 0
    """Comparisons of the kernel with its reference."""
    unproved: str = ""
    """Why the kernel was not compared here; "": it was."""
    why: str = ""
    """Why no kernel was written; "": one was written."""
    timed: TimedKernel | None = None
    """Times of one group on this machine's GPU; None: the run's GPU is not in this machine."""


def is_trace_alone(path: Path) -> bool:
    """Return whether a path is a trace, or a folder with one, without the graph of its ops."""
    return path.is_file() or ((path / TRACE).is_file() and not (path / GRAPH).is_file())


def check_graph(folder: Path) -> None:
    """Raise InputError if a run's folder is missing, or contains no graph of its ops."""
    if not (folder / GRAPH).is_file():
        trace_file(folder)
        raise InputError(
            f"{folder} contains no graph of its ops.",
            "Kernels are written from the data flow between ops. A trace records shapes and launch order, but no "
            "tensors.",
            "Profile the model: tracekit profile --model NAME, or tracekit.profile(model, inputs) for one of your own, "
            "keeps its graph. Or give the trace's execution trace: --execution-trace FILE.",
        )


def rows_of(folder: Path, gpu: GPU) -> tuple[list[Planned], bool]:
    """Return the plan of a run by data flow, and whether the run trains. Raises InputError if there is no graph."""
    check_graph(folder)
    graph = graphs.read(folder / GRAPH)
    return plan(graph, gpu), graph.training


def write(folder: Path, gpu: GPU, numbers: Sequence[int], target: Path, say: Say = silent) -> list[Result]:
    """Check and write the kernels of these rows of a run's plan; without numbers, of all rows that have a kernel."""
    rows, trains = rows_of(folder, gpu)
    results = write_rows(rows, gpu, numbers, target, trains=trains, say=say)
    kernels_json.add(folder, gpu, {each.planned.key: each.timed for each in results if each.timed})
    return results


def write_rows(
    rows: Sequence[Planned], gpu: GPU, numbers: Sequence[int], target: Path, *, trains: bool, say: Say = silent
) -> list[Result]:
    """Check and write the kernels of these rows of a plan; without numbers, of all rows that have a kernel."""
    _check_numbers(numbers, rows)
    check_writable(target / "kernel.py")
    proof.check_interpreter()
    chosen = [each for each in enumerate(rows, 1) if (each[0] in numbers if numbers else each[1].template)]
    results = []
    for number, planned in counted(chosen, "writing kernels"):
        say(f"{number}. {planned.pattern} of {planned.layer or 'the model'}")
        results.append(_written(number, planned, gpu, trains, target))
    return results


def _check_numbers(numbers: Sequence[int], rows: Sequence[Planned]) -> None:
    wrong = [number for number in numbers if not 1 <= number <= len(rows)]
    if wrong:
        raise InputError(
            f"The plan has no group {wrong[0]}.",
            f"It has {len(rows)}.",
            "Leave out --group to see them, or write all of them with --all.",
        )


def _written(number: int, planned: Planned, gpu: GPU, trains: bool, target: Path) -> Result:
    why = obstacle(planned, gpu)
    if why:
        return Result(number, planned, why=why)
    with TemporaryDirectory(prefix="tracekit-") as aside:
        beside = Path(aside) / "kernel.py"
        beside.write_text(text(_described(number, planned, gpu)), encoding="utf-8")
        kernel = load(beside, f"tracekit_kernel_{number}")
        checks = prove(kernel, planned, trains)
        failed = proof.failed(checks)
        if failed:
            first = f"{failed[0].name}: {failed[0].detail or f'{failed[0].error:.1f} times what is allowed'}"
            why = f"{len(failed)} of {len(checks)} comparisons with the reference failed, the first: {first}"
            return Result(number, planned, checks=len(checks), why=why)
        unproved = next((each.detail for each in checks if each.passed is None), "")
        timed = _timed(kernel, planned, gpu, trains)
    path = target / f"{number:02d}_{planned.template}.py"
    write_atomically(path, text(_described(number, planned, gpu, timed, unproved)))
    return Result(number, planned, path, sum(each.passed is True for each in checks), unproved, "", timed)


def prove(kernel: ModuleType, planned: Planned, trains: bool) -> list[proof.Check]:
    """Check a kernel in fp32 and in the type of the run."""
    dtypes = dict.fromkeys((torch_dtype("fp32"), torch_dtype(DTYPES[planned.dtype])))
    device = "cuda" if require("torch.cuda").is_available() else "cpu"
    return proof.prove(kernel, planned.template, tuple(dtypes), trains=trains, device=device)


def _described(
    number: int, planned: Planned, gpu: GPU, timed: TimedKernel | None = None, unproved: str = ""
) -> Written:
    after, each = planned.after_ns, planned.each
    groups = planned.groups
    lines = [
        f"Group {number} of the plan, written by tracekit {__version__} for the {gpu.name}: {groups} in a step, of",
        f"{planned.layer or 'the model'}, each in place of {each.launches_before} launches:",
        *_wrapped(planned.ops),
        f"Predicted: {each.bytes_before / 1e6:,.2f} MB become {each.bytes_after / 1e6:,.2f} MB, and "
        f"{planned.before_ns / groups / 1e3:,.1f} us become {after.expected / groups / 1e3:,.1f} us "
        f"({after.low / groups / 1e3:,.1f} to {after.high / groups / 1e3:,.1f}).",
        *(_wrapped(f"Not proved where it was written: {unproved}. Write it again on the GPU.") if unproved else ()),
        *(_wrapped(f"Measured: {_measured(timed)}") if timed else ()),
        *(_wrapped(f"Launches: {planned.tiles.reason}") if planned.tiles else ()),
        *(_wrapped(f"Elsewhere: {planned.elsewhere}.") if planned.elsewhere else ()),
        *_wrapped(_use(planned)),
    ]
    constants = {**planned.constants, **({} if _is_named(planned) else placeholders(planned.template))}
    return Written(planned.template, constants, _launches(planned, timed), tuple(lines), _body(planned))


def _use(planned: Planned) -> str:
    by_hand = "Use: call fused(...) where the model computes the same as reference(...)"
    if planned.template in BY_HAND:
        return f"{by_hand}."
    if _is_named(planned):
        return "Use: apply(model) puts it in place of the modules, remove(model) takes it out."
    note = f"{by_hand}. The trace names no modules: apply(model) needs their names in the constants below."
    lacks = planned.template == "add_norm" and "EPSILON" not in planned.constants
    return note + (" It does not record the norm's epsilon either: set EPSILON." if lacks else "")


def _is_named(planned: Planned) -> bool:
    return planned.first.group.graph.named


def _launches(planned: Planned, timed: TimedKernel | None) -> tuple[Mapping[str, int], ...]:
    """Return the launch configurations, best first: the fastest, if the kernel was timed."""
    launches = planned.tiles.launches if planned.tiles else ()
    if timed is None or timed.launch not in launches:
        return launches
    return (timed.launch, *(each for each in launches if each != timed.launch))


def _measured(timed: TimedKernel) -> str:
    compiled = f", {timed.compiled_ns / 1e3:,.1f} us by torch.compile" if timed.compiled_ns else ""
    roof = f"; of the rate of a copy: {percent(timed.roof_fraction)}" if timed.roof_fraction else ""
    return f"{timed.before_ns / 1e3:,.1f} us become {timed.after_ns / 1e3:,.1f} us{compiled}{roof}."


def _body(planned: Planned) -> tuple[FunctionDef, ...]:
    """Return the code that is generated from the group's ops; (): the template's own code is used."""
    group = planned.first.group
    if planned.template == "gated_activation":
        return pointwise.body(group, _projections(planned), "_gradients")
    if planned.template == "pointwise_chain" and is_generated(group):
        return pointwise.body(group, ("x0",), "_gradient")
    return ()


def _projections(planned: Planned) -> tuple[str, ...]:
    """Return which input of the group is the gate, and which is multiplied by the activated gate."""
    group = planned.first.group
    graph = group.graph
    if not graph.named:
        return "gate", "up"  # an activation comes first, and reads its gate
    gate = planned.constants["NAMES"][0]
    leaves = [graph.layer(graph.producers[each]).rpartition(".")[2] for each in group.inputs]
    return tuple("gate" if leaf == gate else "up" for leaf in leaves)


def write_source(number: int, planned: Planned, gpu: GPU, folder: Path, timed: Timed) -> Path:
    """Write the kernel of a row without a check, and return its file."""
    path = folder / f"{number:02d}_{planned.template}.py"
    path.write_text(text(_described(number, planned, gpu, timed.get(planned.key))), encoding="utf-8")
    return path


def _wrapped(line: str) -> list[str]:
    import textwrap

    return textwrap.wrap(line, 110)


def _timed(kernel: ModuleType, planned: Planned, gpu: GPU, trains: bool) -> TimedKernel | None:
    """Return the times of one group; None if this machine does not have the GPU."""
    from tracekit.fuse.timing import is_here, time_of

    return time_of(kernel, planned, trains=trains) if is_here(gpu) else None


def put_in(model: Any, paths: Sequence[Path]) -> list[str]:
    """Apply written kernels to a model, and return the refused ones with the reasons. Raises TracekitError if all were
    refused."""
    refused = []
    for number, path in enumerate(paths):
        kernel = load(path, f"tracekit_applied_{number}")
        apply: Callable[[Any], Any] | None = getattr(kernel, "apply", None)
        try:
            if apply is None:
                raise ValueError("It does not replace modules: call its fused(...) in the model's code.")
            apply(model)
        except ValueError as error:
            refused.append(f"{path.name}: {error}")
    if len(refused) == len(paths):
        raise TracekitError("The kernels cannot be applied.", " ".join(refused))
    return refused
