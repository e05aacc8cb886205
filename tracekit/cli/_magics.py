"""`%load_ext tracekit`: the magics `%%tracekit`, which profiles a cell, and `%tracekit`, which profiles a model."""

import os
import shlex
from pathlib import Path
from typing import Any

import click

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.results import Analysis
from tracekit.run import require

require("IPython")  # Raises an error that says what to install, before the imports below fail.
from IPython.core.error import UsageError  # noqa: E402
from IPython.core.interactiveshell import InteractiveShell  # noqa: E402
from IPython.core.magic import Magics, line_cell_magic, magics_class  # noqa: E402
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring  # noqa: E402

FOLDER = "runs/notebook"


def load_ipython_extension(shell: InteractiveShell) -> None:
    shell.register_magics(ProfilingMagics)


@magics_class
class ProfilingMagics(Magics):
    """The magics `%%tracekit` and `%tracekit`."""

    @magic_arguments()
    @argument("--gpu", default="", help="A GPU to project to, which `tracekit gpus` lists.")
    @argument("-o", "--output", default=FOLDER, help=f"Output folder.  [default: {FOLDER}]")
    @line_cell_magic
    def tracekit(self, line: str, cell: str | None = None) -> Analysis | None:
        """Profile the torch code of the cell, and show where its time goes and what to do next.

        As a line magic, `%tracekit gpt2 --gpu t4` profiles a model, with the options of `tracekit profile`.
        """
        try:
            if cell is None:
                return _profiled(line)
            options = parse_argstring(self.tracekit, line)
            return _captured(self.shell, cell, Path(options.output), options.gpu)
        except TracekitError as error:
            raise UsageError(" ".join(part for part in (error.what, error.why, error.hint) if part)) from error
        except click.ClickException as error:
            raise UsageError(error.format_message()) from error


def _captured(shell: Any, cell: str, folder: Path, gpu: str) -> Analysis | None:
    """Run and analyze the cell. Returns None if the cell fails, whose error IPython has then shown."""
    from tracekit.capture import session
    from tracekit.cli._options import say
    from tracekit.profiling import write_outputs

    with session(folder, gpu=gpu, say=say) as capture:
        result = shell.run_cell(cell)
    if not result.success:
        say(f"the cell failed; its trace is {capture.path}")
        return None
    say(f"written to {folder}")
    return write_outputs(folder)


def _profiled(line: str) -> Analysis:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.capture import complete
    from tracekit.cli import main
    from tracekit.cli._options import say
    from tracekit.cli.profile import command
    from tracekit.profiling import profiled_run
    from tracekit.run import Settings

    words = shlex.split(line)
    named = [] if not words or words[0].startswith("-") else ["--model", words.pop(0)]
    around = click.Context(main, **main.context_settings)
    options = command.make_context("%tracekit", [*named, *words], parent=around).params
    force = options.pop("force")
    return profiled_run.run(complete(Settings(**options | {"seq_len": options["seq_len"] or 0})), say, force=force)
