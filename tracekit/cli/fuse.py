"""`tracekit fuse`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tracekit.analyzers.core import InputError
from tracekit.cli._options import GPU_FILE, OPS_FILE, say
from tracekit.cli._outputs import folder_option
from tracekit.reports.words import shell_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.analyzers.cost import GPU
    from tracekit.fuse import Result


@click.command(short_help="Write fused Triton kernels for a run, proved and timed.")
@click.argument("run", type=Path)
@click.option("--group", "groups", type=click.IntRange(min=1), multiple=True, metavar="N", help="A row of the plan.")
@click.option("--all", "everything", is_flag=True, help="Every row that has a kernel.")
@click.option(
    "--execution-trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The execution trace that was recorded with RUN, if RUN is a trace of torch.profiler.",
)
@click.option("--gpu", help="The GPU to write for.  [default: that of the run]")
@click.option("--gpu-file", metavar="FILE", help=GPU_FILE)
@OPS_FILE
@folder_option("Output folder.  [default: RUN/kernels]")
def command(
    run: Path,
    groups: tuple[int, ...],
    everything: bool,
    execution_trace: Path | None,
    gpu: str | None,
    gpu_file: str | None,
    output: Path | None,
) -> None:
    """Write fused kernels for RUN (a run's folder): one Triton file for each group of its plan.

    Groups are ops connected by data flow, from the graph that `profile` writes beside the trace. Without --group or
    --all, the plan is printed. Without a graph, as for a trace of another profiler, the plan consists of neighbours in
    launch order, and no kernel is written. --execution-trace names a file recorded with the trace by torch.profiler's
    ExecutionTraceObserver, which contains the tensors of each op, but no modules: pass their names to apply(model).

    Each file contains the kernel, a reference in PyTorch, and apply(model) and remove(model), with the backward pass if
    the run trains. A kernel is first compared with its reference: in fp32 and in the dtype of the run, at odd sizes, in
    other layouts, with infinities, and by its gradients. This runs on the GPU, or without one in Triton's interpreter.
    A kernel that fails is not written; one that did not run is not proved here. On the GPU of the run, each kernel is
    timed beside the ops that it replaces; `verify --apply fused:all` measures the model with all of them.

    Example: tracekit fuse runs/llama-3.2-1b-h100-sxm-prefill --all -o kernels/

    Example: tracekit fuse trace.json.gz --execution-trace et.json.gz --all -o kernels/
    """
    if groups and everything:
        raise click.UsageError("--all selects every row: use either --group or --all.")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.fuse import interpret_without_gpu

    interpret_without_gpu()
    from tracekit.analyzers.cost import hardware
    from tracekit.fuse import gpu_of, run_kernels
    from tracekit.reports.fuse import plan_text, results_text
    from tracekit.run import KERNELS, TRACE

    if execution_trace:
        _plan_by_execution_trace(run, execution_trace, groups, everything, gpu, gpu_file, output)
        return
    if not groups and not everything and run_kernels.is_trace_alone(run):
        click.echo(_plan_by_launch_order(run, gpu, gpu_file), nl=False)
        return
    run_kernels.check_graph(run)
    chosen = hardware.selected(gpu or "", gpu_file or "") or gpu_of(run)
    if not groups and not everything:
        rows, _ = run_kernels.rows_of(run, chosen)
        click.echo(plan_text(rows, chosen), nl=False)
        if any(row.template for row in rows):
            click.echo(f"\nWrite them with: tracekit fuse {shell_word(str(run))} --all")
        return
    _require_what_kernels_need()
    target = output or run / KERNELS
    results = run_kernels.write(run, chosen, groups, target, say)
    click.echo(results_text(results) or "The plan has no group with a kernel: nothing was written.\n", nl=False)
    if everything and any(each.path for each in results) and (run / TRACE).is_file():
        click.echo(_step(run, chosen, gpu, gpu_file))
    _conclude(results, target)


def _conclude(results: "Sequence[Result]", target: Path) -> None:
    """Say what was written, and end with status 1 if a kernel is missing that has a template or was asked for."""
    written = [each.path.name for each in results if each.path]
    if written:
        click.echo(f"\nWritten to {target}/: {', '.join(written)}")
    if not all(each.path for each in results):
        click.get_current_context().exit(1)


def _require_what_kernels_need() -> None:
    from tracekit.run import require

    require("torch")
    require("triton")


def _plan_by_execution_trace(
    trace: Path,
    beside: Path,
    groups: tuple[int, ...],
    everything: bool,
    gpu: str | None,
    gpu_file: str | None,
    output: Path | None,
) -> None:
    """Print the plan of a trace by the tensors of its execution trace, or write its kernels."""
    from tracekit.analyzers.trace import load
    from tracekit.fuse import executed_plan, gpu_of_trace, write_rows
    from tracekit.reports.fuse import plan_text, results_text
    from tracekit.run import KERNELS

    chosen = gpu_of_trace(load(trace), trace, gpu, gpu_file)
    plan = executed_plan(trace, beside, chosen)
    if not groups and not everything:
        click.echo(plan_text(plan.rows, chosen, measured=plan.measured), nl=False)
        if any(row.template for row in plan.rows):
            names = shell_word(str(trace)), shell_word(str(beside))
            click.echo(f"\nWrite them with: tracekit fuse {names[0]} --execution-trace {names[1]} --all")
        return
    _require_what_kernels_need()
    target = output or (trace if trace.is_dir() else trace.parent) / KERNELS
    results = write_rows(plan.rows, chosen, groups, target, trains=plan.trains, say=say)
    click.echo(results_text(results) or "The plan has no group with a kernel: nothing was written.\n", nl=False)
    _conclude(results, target)


def _plan_by_launch_order(run: Path, gpu: str | None, gpu_file: str | None) -> str:
    from tracekit.answer import analyze
    from tracekit.reports.fuse import launch_order_text

    return launch_order_text(analyze(run, gpu, gpu_file=gpu_file).fusion_plan)


def _step(run: Path, chosen: "GPU", gpu: str | None, gpu_file: str | None) -> str:
    """Return the predicted gain of the step with all kernels, which is kept for the report's card."""
    from tracekit.answer import predict
    from tracekit.reports.words import speedup
    from tracekit.run import kernels_json

    try:
        gain = predict(run, "fused:all", gpu, gpu_file=gpu_file).speedup
    except InputError as error:
        return f"\nThe step with all of them is not predicted: {error.what} {error.why}"
    kernels_json.keep_gain(run, chosen, gain)
    measure = f"Measure it with: tracekit verify {shell_word(str(run))} --apply fused:all"
    return f"\nA step with all of them is predicted to be {speedup(gain)} as fast. {measure}"
