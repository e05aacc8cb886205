"""`tracekit profile`."""

import os
from pathlib import Path
from typing import Any

import click

from tracekit.cli._options import FORCE, GPU_FILE, SYNCHRONIZE, say, show_outputs
from tracekit.cli._outputs import folder_option
from tracekit.run import ATTENTIONS, DEVICES, DTYPES, LINKS, WEIGHTS, WORKLOAD_NAMES, Synchronize

_POSITIVE = click.IntRange(1, 10**9)
_RANKS = click.IntRange(0, 1 << 20)
_STEPS = click.IntRange(1, 10_000)


@click.command(short_help="Profile a model, or model it for a GPU that is not here.")
@click.option("--model", required=True, help="A bundled model, a directory with a config.json, or a hub name.")
@click.option("--gpu", default="", help="A GPU that `tracekit gpus` lists.  [default: the one in this machine]")
@click.option("--gpu-file", metavar="FILE", default="", help=GPU_FILE)
@click.option("--workload", type=click.Choice(WORKLOAD_NAMES), default="prefill", show_default=True)
@click.option("--batch-size", type=_POSITIVE, default=1, show_default=True)
@click.option(
    "--seq-len", type=_POSITIVE, default=None, help="Tokens of the prompt or cache.  [default: 512, if they fit]"
)
@click.option("--new-tokens", type=_POSITIVE, default=32, show_default=True, help="Tokens that generate produces.")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default="auto",
    show_default=True,
    help="auto: the dtype in which the weights are published.",
)
@click.option("--attention", type=click.Choice(ATTENTIONS), default="sdpa", show_default=True)
@click.option(
    "--device",
    type=click.Choice(DEVICES),
    default="auto",
    show_default=True,
    help="model: nothing runs, and times are modelled.",
)
@click.option("--weights", type=click.Choice(WEIGHTS), default="random", show_default=True)
@click.option("--steps", type=_STEPS, default=3, show_default=True, help="Steps recorded in the trace.")
@click.option("--synchronize", type=click.Choice(["modules"]), default=None, help=SYNCHRONIZE)
@click.option("--data-parallel", type=_RANKS, default=0, metavar="N", help="N GPUs train with DistributedDataParallel.")
@click.option("--tensor-parallel", type=_RANKS, default=0, metavar="N", help="N GPUs share each layer.")
@click.option("--fsdp", is_flag=True, help="The GPUs of --world-size share the weights (fully_shard).")
@click.option("--world-size", type=_RANKS, default=0, metavar="N", help="Number of GPUs.")
@click.option(
    "--link", type=click.Choice(LINKS), default="nvlink", show_default=True, help="Link between modelled GPUs."
)
@folder_option("Output folder.  [default: runs/MODEL-GPU-WORKLOAD]")
@FORCE
def command(
    seq_len: int | None, synchronize: Synchronize | None, output: Path | None, force: bool, **options: Any
) -> None:
    """Profile a model: where its time goes, what bounds it, what to do next.

    On a GPU, or with --device cpu, the model runs under torch.profiler, and is also timed without it. Else nothing
    runs: the times of its ops are modelled for --gpu. If --gpu is not the GPU of this machine, the run is measured here
    and projected to --gpu.

    \b
    Workloads:
      prefill   one forward over the prompt
      decode    one token on a KV cache of --seq-len tokens
      generate  prefill, then decode steps until there are --new-tokens
      train     forward, backward, optimizer step

    \b
    Files, in the output folder:
      trace.json.gz  the trace, which Perfetto and Chrome also open
      report.html    one page that works offline
      analysis.json  the same, as data
      graph.json.gz  the ops and the tensors between them, for `fuse`
      run.json       the settings, to repeat the run

    With --synchronize modules, each module of a forward pass (not with train) is also timed with a wait for the device
    before and after it. The report shows those shares beside those of the work, and why they differ.

    With --data-parallel, --tensor-parallel or --fsdp, each rank is a process on this host and writes
    rank-N/trace.json.gz, for `tracekit ranks`. With --device model, only the first rank is modelled, because all ranks
    do the same.

    Example: tracekit profile --model gpt2 --gpu t4 --workload decode
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.capture import complete
    from tracekit.profiling import profiled_run
    from tracekit.run import Settings

    settings = complete(
        Settings(seq_len=seq_len or 0, synchronize=synchronize or "", output=str(output or ""), **options)
    )
    folder = profiled_run.rank_folder(settings)
    show_outputs(profiled_run.run(settings, say, force=force), folder)
    if folder != settings.folder:
        say(f"the ranks together: tracekit ranks {settings.folder} -o {settings.folder}")
