"""`tracekit quantize`."""

import os
from pathlib import Path
from typing import Any

import click

from tracekit.cli._options import EVAL, say
from tracekit.cli.bench import check_names
from tracekit.run import DEVICES, WEIGHTS


class GroupSize(click.ParamType):
    name = "group"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "channel" or isinstance(value, int):
            return value
        return int(value) if str(value).isdecimal() else self.fail(f"{value!r} is no number, nor channel.", param, ctx)


@click.command(short_help="Write a model's weights in 4 or 8 bits, and judge them.")
@click.option("--model", required=True, help="A directory with a config.json, a hub name, or a bundled model.")
@click.option(
    "--to",
    required=True,
    metavar="FORMAT",
    help="int4, int8, nf4, awq or smoothquant; lora, qlora or qlora:FORMAT: adapters beside them; "
    "qat:FORMAT: weights trained in the format.",
)
@click.option("--group-size", type=GroupSize(), default=64, show_default=True, help="Inputs of a scale, or channel.")
@click.option("--train-steps", type=click.IntRange(min=1), metavar="N", help="Steps that lora, qlora and qat train.")
@click.option("--calibration", type=Path, metavar="FILE", help="Text that calibrates and trains.  [default: a sample]")
@click.option("--eval", "evaluation", metavar="WHAT", default="", help=EVAL)
@click.option(
    "--device",
    type=click.Choice([device for device in DEVICES if device != "model"]),
    default="auto",
    help="[default: the GPU here, else the CPU]",
)
@click.option("--weights", type=click.Choice(WEIGHTS), default="pretrained", show_default=True)
@click.option("-o", "--output", type=Path, metavar="FILE", required=True, help="The file to write (.safetensors).")
def command(
    to: str,
    group_size: Any,
    train_steps: int | None,
    calibration: Path | None,
    evaluation: str,
    output: Path,
    **shared: Any,
) -> None:
    """Write a model's weights in 4 or 8 bits, and say what that costs in quality.

    The linear layers except the head become tracekit's own layers (nf4: those of bitsandbytes), as by
    `tracekit.quantize`; `tracekit.quantization.load` loads the file. With --eval, both models are judged by a text,
    token ids or a function: the value before and after, its change with a 95 % interval, and for tokens the share of
    equal next tokens and the KL divergence. With random weights nothing is judged.

    `bench --apply packed-int4,awq,qlora:int4` measures the same formats beside their speed.

    Example: tracekit quantize --model my_model/ --to awq --calibration train.txt --eval held_out.txt -o awq.safetensors
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from tracekit.measure import check_format, evaluation_of, quantize_to, text_of
    from tracekit.reports.answer import quality_document
    from tracekit.reports.document import render
    from tracekit.reports.words import check_writable, quantity
    from tracekit.run import Settings, require

    check_names([shared["model"]])
    check_format(to)
    if shared["device"] == "auto":
        shared["device"] = "cuda" if require("torch.cuda").is_available() else "cpu"
    judge = evaluation_of(evaluation) if evaluation else None
    text = text_of(calibration)
    check_writable(output)
    say(f"quantizing {shared['model']}: {to}")
    settings = Settings(**shared, workload="prefill")
    written = quantize_to(output, settings, to, group_size, text, train_steps or 0, judge)
    sizes = [quantity(each, "B") for each in (written.bytes_before, written.bytes_after)]
    click.echo(f"{written.name} in {to}: {sizes[0]} of weights in 16 bits, now {sizes[1]}")
    if written.quality:
        click.echo(render(quality_document(to, written.quality), "text"), nl=False)
    elif written.caveat or judge:
        click.echo(written.caveat or "Nothing is judged: the weights are random.")
    click.echo(f"Written to {output}")
