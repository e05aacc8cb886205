"""`tracekit run`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from tracekit.analyzers.errors import TracekitError
from tracekit.capture.settings import DEVICES, Device
from tracekit.commands._output import FORCE, folder_option, say, show_outputs
from tracekit.commands._reading import GPU_FILE
from tracekit.runs.folders import TRACE

if TYPE_CHECKING:
    from tracekit.capture.distributed import Place
    from tracekit.capture.modelled_session import ModelledCapture
    from tracekit.capture.session import Capture

_INTERRUPTED = 130


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Profile a Python script without changing it.",
)
@click.option("--gpu", default="", help="A GPU to project or model the run for, which `tracekit gpus` lists.")
@click.option("--gpu-file", metavar="FILE", default="", help=GPU_FILE)
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="auto",
    show_default=True,
    help="model: the script runs on the CPU, and its ops are modelled for --gpu.",
)
@folder_option("Output folder.  [default: runs/SCRIPT]")
@FORCE
@click.argument("script", type=Path)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    gpu: str, gpu_file: str, device: Device, output: Path | None, force: bool, script: Path, args: tuple[str, ...]
) -> None:
    """Profile a Python script without changing it.

    SCRIPT ARGS... runs as with `python SCRIPT ARGS...`. The trace names every torch module that the script calls. The
    whole run is recorded, so keep it to a few steps. If the script fails, its error and exit status are passed on,
    and the trace is kept.

    With --gpu, the run is measured here and projected to that GPU. Without a GPU, or with --device model, the script
    runs on the CPU, which "cuda" in the script then refers to, and its ops are modelled for the GPU.

    Under torchrun, each rank writes its trace into a separate folder, for `tracekit ranks`.

    \b
    Examples:
      tracekit run -o runs/mine train.py --epochs 1
      torchrun --nproc-per-node 8 -m tracekit run -o runs/mine train.py
      tracekit run --gpu t4 my_gpt2.py
    """
    from tracekit.capture.distributed import place
    from tracekit.capture.session import session
    from tracekit.runs.held_run import check_script_folder
    from tracekit.runs.outputs import write_outputs

    job, here = output or Path("runs") / script.stem, place()
    folder = job / f"rank-{here.rank}" if here else job
    check_script_folder(script, folder, force)
    _record(session(folder, gpu=gpu, gpu_file=gpu_file, device=device, say=say), script, args, folder)
    if here:
        _say_rank(here, job, folder)
        return
    say("analyzing")
    show_outputs(write_outputs(folder), folder)


def _record(capture: "Capture | ModelledCapture", script: Path, args: tuple[str, ...], folder: Path) -> None:
    """Run the script while `capture` records it. If the script fails, the process ends with its error."""
    from tracekit.capture.script import profile_script
    from tracekit.runs.outputs import write_script_run

    say(f"profiling {script}")
    failure = profile_script(script, args, capture)
    write_script_run(script, folder)
    if failure:
        say(f"the script failed; its trace is {folder / TRACE}")
        _pass_on(failure)


def _say_rank(here: "Place", job: Path, folder: Path) -> None:
    say(f"rank {here.rank} of {here.world_size} wrote {folder / TRACE}")
    if here.rank == 0:
        say(f"when all ranks have: tracekit ranks {job} -o {job}")


def _pass_on(failure: BaseException) -> NoReturn:
    """End the process as Python does when a script raises `failure`."""
    if isinstance(failure, (SystemExit, TracekitError)):
        raise failure
    sys.excepthook(type(failure), failure, failure.__traceback__)
    raise SystemExit(_INTERRUPTED if isinstance(failure, KeyboardInterrupt) else 1)
