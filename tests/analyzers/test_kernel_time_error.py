"""The error of the kernel time model on public measurements stays where it was when it was fitted."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from analyzers.kernel_time import estimate_ns

_CHECK = Path(__file__).parents[2] / "benchmarks" / "check_kernel_time.py"
_LIMITS = {"gemm bf16": 0.15, "gemm fp8": 0.32, "linear fp32": 0.12, "bmm fp32": 0.27, "add fp32": 0.10}
_LIMITS |= {"ln fp32": 0.20, "softmax fp32": 0.20, "attention prefill": 0.25, "attention decode": 0.50}


def test_mean_error_a_class_and_gpu(shared: Path) -> None:
    pytest.importorskip("pyarrow")
    spec = spec_from_file_location("check_kernel_time", _CHECK)
    assert spec is not None and spec.loader is not None
    check = module_from_spec(spec)
    spec.loader.exec_module(check)
    errors = {
        (name, gpu.id): np.mean([abs(estimate_ns(cost, gpu) / nanoseconds - 1) for cost, nanoseconds in rows])
        for name, gpu, rows in check.classes(shared / "calibration")
    }
    limit_of = {key: next(limit for start, limit in _LIMITS.items() if key[0].startswith(start)) for key in errors}
    assert {key: error for key, error in errors.items() if error > limit_of[key]} == {}
    assert len(errors) == 50
