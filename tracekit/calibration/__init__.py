"""Calibrations: measurements of a machine that `tracekit calibrate` stores for later predictions."""

from tracekit.calibration.calibration_files import load, store
from tracekit.calibration.value import Calibration

__all__ = ["Calibration", "load", "store"]
