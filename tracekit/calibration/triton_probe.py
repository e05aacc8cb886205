"""Host time of launching a Triton kernel, where Triton is there."""

from importlib import import_module
from importlib.util import find_spec

from tracekit.calibration.timing import host_us
from tracekit.capture.packages import require


def launch_us() -> tuple[float, float, float] | None:
    """10th percentile, median and 90th percentile in microseconds; None without Triton."""
    if find_spec("triton") is None:
        return None
    torch, kernel = require("torch"), import_module("tracekit.calibration.triton_kernel").double
    x = torch.zeros(64, device="cuda")
    return host_us(lambda: kernel[(1,)](x), torch.cuda.synchronize)
