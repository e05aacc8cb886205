"""Measures this machine, stores what was measured, and applies it to later predictions."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.calibrate.applied import calibrated_gpu
    from tracekit.calibrate.files import Calibration, store
    from tracekit.calibrate.gpu_list import listed
    from tracekit.calibrate.measuring import measure
else:
    __getattr__ = lazily(__name__, __file__)
