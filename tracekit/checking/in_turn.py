"""Times two runs again, alternately, so that a drift of the machine affects both."""

from pathlib import Path

from tracekit.analyzers.errors import InputError
from tracekit.capture.progress import Say, silent
from tracekit.capture.settings import Settings
from tracekit.measurement import jobs
from tracekit.measurement.worker import Worker, checked
from tracekit.runs.run_file import settings_of

Blocks = tuple[tuple[float, float], ...]
"""Median latency of each block in µs, before and after."""


def timed_in_turn(before: str | Path, after: str | Path, *, wall_s: float, say: Say = silent) -> Blocks:
    """Build both runs from the settings in their folders, and time them in alternating blocks in another process.

    Raises InputError if a folder has no settings, or is that of a modelled run.
    """
    settings = [_settings(Path(folder)) for folder in (before, after)]
    with Worker(say=say) as worker:
        blocks: Blocks = checked(worker.call(jobs.blocks_in_turn, *settings, wall_s))
    return blocks


def _settings(folder: Path) -> Settings:
    settings = settings_of(folder)
    if settings.device == "model":
        raise InputError(
            f"{folder} cannot be timed again.", "The run is modelled and cannot run here.", "Leave out --in-turn."
        )
    return settings
