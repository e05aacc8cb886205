"""What a job of several ranks needs of its settings."""

from tracekit.analyzers.errors import InputError
from tracekit.capture.settings import Settings


def check_split(settings: Settings) -> None:
    """Raise InputError if the ranks cannot run the settings."""
    split = settings.split
    if split is None:
        return
    if split.kind != "tensor-parallel" and settings.workload != "train":
        raise InputError(
            f"{split.kind} is a way of training.", f"{settings.workload} trains nothing.", "Add --workload train."
        )
    if settings.device != "model":
        raise InputError(
            "Several ranks are modelled only.",
            "profile runs one process.",
            "Add --device model --gpu NAME; or start the ranks yourself: torchrun ... -m tracekit run train.py.",
        )
