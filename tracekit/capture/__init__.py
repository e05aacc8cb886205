"""Captures a model, a script or a block of torch code in a trace file.

`tracekit.capture("run/")` is the context manager of `tracekit.capture.session`. This package has the same name as that
function, so it makes itself callable.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.capture.modelled_session import ModelledCapture
    from tracekit.capture.session import Capture
    from tracekit.capture.settings import Device


class _CallablePackage(ModuleType):
    def __call__(
        self,
        folder: str | Path,
        *,
        gpu: str = "",
        gpu_file: str | Path = "",
        device: "Device" = "auto",
        force: bool = False,
    ) -> "Capture | ModelledCapture":
        from tracekit.capture.session import session

        return session(Path(folder), gpu=gpu, gpu_file=gpu_file, device=device, force=force)


sys.modules[__name__].__class__ = _CallablePackage
