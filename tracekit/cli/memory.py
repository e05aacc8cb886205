"""`tracekit memory`."""

from pathlib import Path

import click

from tracekit.cli._options import FORCE
from tracekit.cli._outputs import Output, answer_to, output, stdout_format


@click.command(short_help="Show what holds device memory at its peak, and over time.")
@click.argument("file", type=Path)
@click.option("--gpu", help="The GPU of the run, if the trace does not state it.")
@stdout_format("text", "json")
@output("html", "json", "text")
@FORCE
def command(file: Path, gpu: str | None, form: str | None, output: Output | None, force: bool) -> None:
    """Show what holds device memory at its peak, and over time, in FILE.

    \b
    FILE is one of:
      a trace with memory events, or its run's folder (modelled runs; torch.profiler with profile_memory=True):
        memory by kind and by layer, and the predicted peak after each optimization that lowers it
      a .pickle of torch.cuda.memory._dump_snapshot(): reserved and allocated memory, and the lines of code that hold
      it; it is read without executing anything in it

    Example: tracekit memory runs/gpt2-t4-train -o memory.html
    """
    from tracekit.reports.words import check_text

    answer = answer_to(output, form, "memory", force, file)
    answer.check(str(file))
    if output and output.form == "html":
        check_text(output.path, "a page of memory", ("Memory over time",), force)
    if file.suffix == ".pickle":
        answer.give(lambda _: _memory_of_snapshot(file, answer.form))
    else:
        answer.give(lambda _: _memory_of_run_file(file, gpu, answer.form))


def _memory_of_run_file(file: Path, gpu: str | None, form: str) -> str:
    from tracekit.answer import memory_of_run
    from tracekit.reports.document import render
    from tracekit.reports.memory import memory_document, memory_json

    run = memory_of_run(file, gpu)
    return memory_json(run) if form == "json" else render(memory_document(run), form)


def _memory_of_snapshot(file: Path, form: str) -> str:
    from tracekit.analyzers.memory import bytes_over_time, read_snapshot, summarize
    from tracekit.reports.document import render
    from tracekit.reports.memory import snapshot_document, snapshot_json

    snapshot = read_snapshot(file)
    devices = summarize(snapshot)
    if form == "json":
        return snapshot_json(devices)
    most = max(devices, key=lambda each: each.peak or each.allocated, default=None)
    return render(snapshot_document(file.name, devices, bytes_over_time(snapshot, most.device if most else 0)), form)
