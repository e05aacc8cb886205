"""What `tracekit calibrate` measures on a machine, keeps, and hands to later predictions."""

from tracekit.calibration.store import load, store
from tracekit.calibration.value import Calibration

__all__ = ["Calibration", "load", "store"]
