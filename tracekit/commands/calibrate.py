"""`tracekit calibrate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tracekit.calibration import Calibration


@click.command()
@click.option("-o", "--output", type=Path, metavar="FILE", help="Write here instead.")
def command(output: Path | None) -> None:
    """Measure this machine, so that predictions for it are narrower.

    It measures what an op costs the host, by class; and, with a GPU, launch latency, bandwidth of copies, and what
    large matrix products sustain. It takes less than two minutes, in which nothing else should run here.

    The result is kept in ~/.config/tracekit ($XDG_CONFIG_HOME), and used by `tracekit profile --device model` when
    it models the GPU that is here.
    """
    from tracekit.calibration import store
    from tracekit.calibration.measure import measure
    from tracekit.commands._output import say
    from tracekit.reports.files import check_writable

    if output:
        check_writable(output)
    calibration = measure(say)
    click.echo(_shown(calibration))
    click.echo(f"\nWritten to {store(calibration, output)}")


def _shown(found: "Calibration") -> str:
    lines = [f"{found.device_name or 'No GPU'}, {found.processor}, in {found.took_s:.0f} s", "", "host time, µs"]
    lines += [f"  {name:<18}{median:8.2f}" for name, (_, median, _) in found.host_us.items()]
    if found.device_name:
        launch = f"{found.launch_us:8.2f}" if found.launch_us else " not told apart"
        lines += [f"  {'launch to start':<18}{launch}", "copies, GB/s"]
        lines += [f"  {name:<18}{rate:8.1f}" for name, rate in found.copies_gb_per_s.items()]
        lines += ["matrix products, TFLOP/s"]
        lines += [f"  {name:<18}{rate:8.1f}" for name, rate in found.sustained_tflops.items()]
    return "\n".join(lines)
