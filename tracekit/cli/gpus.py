"""`tracekit gpus`."""

import click


@click.command(short_help="List the GPUs that --gpu knows.")
@click.option("--format", "format_", type=click.Choice(["text", "json", "csv"]), default="text", show_default=True)
def command(format_: str) -> None:
    """List the GPUs that --gpu knows, with dense peaks, bandwidth and memory.

    JSON and CSV have every field: features, sustained rates, driver names, and the source of the numbers.
    """
    from tracekit.calibrate import listed

    click.echo(listed(format_), nl=False)
