"""GPUs of published results that are not in tracekit's catalogue."""

from dataclasses import replace

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import GPU, hardware


def gpu(name: str) -> GPU:
    """Return a GPU of the catalogue, with changed properties if given. It keeps the id, which traces refer to."""
    return _SPECIAL[name]() if name in _SPECIAL else hardware.find(name)


def _rtx_3080_ti_laptop() -> GPU:
    """GA103: 58 multiprocessors at 1.59 GHz, 512 GB/s; its host is a recent laptop processor."""
    return replace(
        hardware.find("rtx-3090"),
        name="NVIDIA GeForce RTX 3080 Ti Laptop GPU",
        sms=58,
        clock_ghz=1.59,
        memory_gb=16,
        bandwidth_gbs=512,
        l2_mb=4,
        tdp_w=150,
        peaks_tflops={
            "fp64": 0.37,
            "fp32": 23.6,
            "tf32": 23.6,
            "fp16": 47.2,
            "bf16": 47.2,
            "int8": 188.9,
            "int4": 377.8,
        },
        host_op_us=Interval(8.0, 10.0, 13.0),
    )


def _h100_with_hbm2e() -> GPU:
    return replace(hardware.find("h100-sxm"), name="NVIDIA H100, 2.4 TB/s", bandwidth_gbs=2400)


_SPECIAL = {"rtx-3080-ti-laptop": _rtx_3080_ti_laptop, "h100-2.4tb": _h100_with_hbm2e}
