"""`tracekit run`."""

import sys
from pathlib import Path
from typing import NoReturn

import click

from tracekit.commands._output import FORCE, say, show_outputs
from tracekit.commands._reading import GPU_FILE
from tracekit.runs.folders import TRACE

_INTERRUPTED = 130


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--gpu", default="", help="A GPU to project the run to, which `tracekit gpus` lists.")
@click.option("--gpu-file", metavar="FILE", default="", help=GPU_FILE)
@click.option(
    "-o",
    "--output",
    type=Path,
    metavar="DIRECTORY",
    help="Output folder.  [default: runs/SCRIPT]",
)
@FORCE
@click.argument("script", type=Path)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(gpu: str, gpu_file: str, output: Path | None, force: bool, script: Path, args: tuple[str, ...]) -> None:
    """Profile a Python script without changing it.

    SCRIPT ARGS... runs as with `python SCRIPT ARGS...`. The trace names every torch module that the script calls. The
    whole run is recorded, so keep it to a few steps. If the script fails, its error and exit status are passed on,
    and the trace is kept.

    Example: tracekit run -o runs/mine train.py --epochs 1
    """
    from tracekit.capture.script import profile_script
    from tracekit.runs.held_run import check_script_folder
    from tracekit.runs.outputs import write_outputs, write_script_run

    folder = output or Path("runs") / script.stem
    check_script_folder(script, folder, force)
    say(f"profiling {script}")
    failure = profile_script(script, args, folder, gpu, gpu_file)
    write_script_run(script, folder)
    if failure:
        say(f"the script failed; its trace is {folder / TRACE}")
        _pass_on(failure)
    say("analyzing")
    show_outputs(write_outputs(folder), folder)


def _pass_on(failure: BaseException) -> NoReturn:
    """End the process as Python does when a script raises `failure`."""
    if isinstance(failure, SystemExit):
        raise failure
    sys.excepthook(type(failure), failure, failure.__traceback__)
    raise SystemExit(_INTERRUPTED if isinstance(failure, KeyboardInterrupt) else 1)
