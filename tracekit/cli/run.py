"""`tracekit run`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tracekit.analyzers.core import InputError, TracekitError, reading
from tracekit.cli._options import FORCE, GPU_FILE, SYNCHRONIZE, say, show_outputs, verbose
from tracekit.cli._outputs import folder_option
from tracekit.run import DEVICES, Device

if TYPE_CHECKING:
    from tracekit.analyzers.cost import GPU
    from tracekit.capture import Capture, ModelledCapture
    from tracekit.run import Place


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
@click.option("--synchronize", type=click.Choice(["modules"]), default=None, help=SYNCHRONIZE)
@folder_option("Output folder.  [default: runs/SCRIPT or runs/SCRIPT-GPU, with a number if another run is there]")
@FORCE
@click.argument("script", type=Path)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(
    gpu: str,
    gpu_file: str,
    device: Device,
    synchronize: str | None,
    output: Path | None,
    force: bool,
    script: Path,
    args: tuple[str, ...],
) -> None:
    """Profile a Python script without changing it.

    SCRIPT ARGS... runs as with `python SCRIPT ARGS...`: what follows SCRIPT is passed to it, so options of tracekit
    come before it. The trace names every torch module that the script calls. The whole run is recorded, so keep it to a
    few steps. If the script fails, its error and exit status are passed on, and the trace is kept.

    With --gpu, the run is measured here and projected to that GPU. Without a GPU, or with --device model, the script
    runs on the CPU, which "cuda" in the script then refers to, and its ops are modelled for the GPU.

    With --synchronize modules, the script is first run once more, in another process, with each module timed between
    synchronizations of the device; what it writes is written twice. The shares stand beside those of the work.

    Under torchrun, each rank writes its trace into a separate folder, for `tracekit ranks`.

    \b
    Examples:
      tracekit run -o runs/mine train.py --epochs 1
      torchrun --nproc-per-node 8 -m tracekit run -o runs/mine train.py
      tracekit run --gpu t4 my_gpt2.py
    """
    from tracekit.analyzers.cost import hardware
    from tracekit.capture import session
    from tracekit.profiling import write_outputs
    from tracekit.run import place, run_of_script

    _say_misplaced(script, args)
    with reading(f"{script} cannot be run.", "Name a Python script."):
        run = run_of_script(script, args)
    target, here = hardware.selected(gpu, gpu_file), place()
    job = output or Path("runs") / (f"{script.stem}-{target.id}" if target else script.stem)
    folder = job / f"rank-{here.rank}" if here else job
    options: dict[str, Any] = {"gpu": gpu, "gpu_file": gpu_file, "device": device, "force": force, "say": say}
    about = {"synchronized": _module_shares(script, args, device, target, here)} if synchronize else {}
    capture = session(folder, run, numbered=not (output or here), about=about, **options)
    _record(capture, script, args)
    if here:
        _say_rank(here, job, folder)
        return
    say("analyzing")
    show_outputs(write_outputs(capture.path.parent), capture.path.parent)


def _module_shares(
    script: Path, args: tuple[str, ...], device: Device, target: "GPU | None", here: "Place | None"
) -> dict[str, float]:
    """Return the shares of the script's classes of modules, timed between synchronizations in another process."""
    from tracekit.capture import device_of, refuse_modelled
    from tracekit.measure import Worker, checked, script_run

    there = device_of(target, device)
    refuse_modelled(there)
    if here:
        raise InputError("A rank is not timed by modules.", "Its script is run twice, the other ranks' are not.")
    say(f"timing the modules of {script} between synchronizations")
    with Worker(verbose=verbose()) as worker:
        command_line = script_run.Command(script, args, there == "cuda")
        shares: dict[str, float] = checked(worker.call(script_run.module_shares, command_line))
    if not shares:
        say(f"{script} calls no torch module, so none was timed")
    return shares


def _say_misplaced(script: Path, args: tuple[str, ...]) -> None:
    """Say which of the script's arguments would be options of this command before SCRIPT."""
    own = {name for each in command.params for name in each.opts if name.startswith("-")}
    misplaced = [each for each in args if each.partition("=")[0] in own]
    if misplaced:
        say(f"{', '.join(misplaced)} after {script} is an argument of the script; options of tracekit come before it")


def _record(capture: "Capture | ModelledCapture", script: Path, args: tuple[str, ...]) -> None:
    """Run the script while `capture` records it. If the script fails, the process ends with its error."""
    from tracekit.capture import profile_script

    say(f"profiling {script}")
    failure = profile_script(script, args, capture)
    if failure:
        say(f"the script failed; its trace is {capture.path}")
        _pass_on(failure)


def _say_rank(here: "Place", job: Path, folder: Path) -> None:
    say(f"rank {here.rank} of {here.world_size} wrote its trace into {folder}")
    if here.rank == 0:
        say(f"when all ranks have: tracekit ranks {job} -o {job}")


def _pass_on(failure: BaseException) -> NoReturn:
    """End the process as Python does when a script raises `failure`."""
    if isinstance(failure, (SystemExit, TracekitError)):
        raise failure
    sys.excepthook(type(failure), failure, failure.__traceback__)
    raise SystemExit(_INTERRUPTED if isinstance(failure, KeyboardInterrupt) else 1)
