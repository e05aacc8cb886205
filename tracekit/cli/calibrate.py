"""`tracekit calibrate`."""

from typing import TYPE_CHECKING

import click

from tracekit.cli._outputs import Output, output

if TYPE_CHECKING:
    from tracekit.calibrate import Calibration


@click.command(short_help="Measure this machine, for narrower predictions.")
@output("json", into="Write to FILE instead of the configuration folder.")
def command(output: Output | None) -> None:
    """Measure this machine, so that predictions for it are narrower.

    Measures the host time of an op, by class; and, with a GPU, launch latency, copy bandwidth, and the rate of large
    GEMMs. This takes less than two minutes, during which nothing else should run on the machine.

    The result is kept in ~/.config/tracekit ($XDG_CONFIG_HOME), and used by `tracekit profile --device model` when
    it models the GPU of this machine.
    """
    from tracekit.calibrate import measure, store
    from tracekit.cli._options import say
    from tracekit.reports.words import check_writable

    if output:
        check_writable(output.path)
    calibration = measure(say)
    click.echo(_text(calibration))
    click.echo(f"\nWritten to {store(calibration, output.path if output else None)}")


def _text(calibration: "Calibration") -> str:
    lines = [
        f"{calibration.device_name or 'No GPU'}, {calibration.processor}, in {calibration.took_s:.0f} s",
        "",
        "host time, µs",
    ]
    lines += [f"  {name:<18}{median:8.2f}" for name, (_, median, _) in calibration.host_us.items()]
    if calibration.device_name:
        launch = f"{calibration.launch_us:8.2f}" if calibration.launch_us else " not measurable"
        lines += [f"  {'launch to start':<18}{launch}", "copies, GB/s"]
        lines += [f"  {name:<18}{rate:8.1f}" for name, rate in calibration.copies_gb_per_s.items()]
        lines += ["GEMMs, TFLOP/s"]
        lines += [f"  {name:<18}{rate:8.1f}" for name, rate in calibration.sustained_tflops.items()]
    return "\n".join(lines)
