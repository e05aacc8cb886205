"""Compares the kernel time model with our own measurements, which are always there, and with public ones."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

from benchmarks.measurements import own, public
from benchmarks.measurements.own import Row
from tracekit.analyzers.cost import cost_of_signature, estimate_ns
from tracekit.analyzers.cost.hardware import find

_DATA = Path(__file__).parents[2] / "benchmarks" / "data"
_OWN = {"gemm bf16": 0.10, "gemm fp32": 0.12, "gemm tf32": 0.10, "gemm int8": 0.12, "attention": 0.10}
_OWN |= {"pointwise": 0.15, "copy": 0.16, "norm": 0.25, "softmax": 0.22, "optimizer": 0.18}
_OWN |= {"reduction, rows": 0.14, "reduction, search": 0.11}
_OWN |= {"pointwise, indexed": 0.13, "copy, indexed": 0.18, "copy, transposed": 0.12, "reduction, columns": 0.22}
_PUBLIC = {"gemm bf16": 0.12, "gemm fp32": 0.17, "pointwise": 0.08, "norm": 0.20, "softmax": 0.20}
_PUBLIC |= {"attention prefill": 0.14, "attention decode": 0.13}
_WITHOUT_TENSOR_CORES = {"p4", "p100-pcie"}
"""GPUs of 2016, whose sustained rates are estimates from data sheets of later ones: off by up to 31 %."""


def errors(rows: list[Row]) -> dict[tuple[str, str], float]:
    """Mean |modelled / measured - 1| by family and GPU."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        groups[row.family, row.gpu.id].append(abs(estimate_ns(row.cost, row.gpu) / row.nanoseconds - 1))
    return {key: float(np.mean(errors)) for key, errors in groups.items()}


def test_our_own_kernels() -> None:
    rows = [row for row in own.rows() if row.label not in own.NAIVE]
    model_errors = {family: error for (family, _), error in errors(rows).items() if family in _OWN}
    assert model_errors.keys() == _OWN.keys()
    assert {family: error for family, error in model_errors.items() if error > _OWN[family]} == {}
    assert len(rows) > 2500


def test_batch_norms_and_scans_of_columns() -> None:
    rows = [row for row in own.rows(own.SEQUENCES, "h100") if row.family in ("norm", "reduction, scan-columns")]
    model_errors = {family: error for (family, _), error in errors(rows).items()}
    assert len(rows) == 109
    assert model_errors["norm"] < 0.09 and model_errors["reduction, scan-columns"] < 0.22


# Convolutions over 64 images or 4 sounds, recorded in training of two networks that are not bundled, on an H100.
_GRADIENTS = [
    ([64, 192, 112, 112], [192, 1, 3, 3], 1, 1, "c10::BFloat16", 4744),
    ([64, 1536, 14, 14], [1536, 1, 3, 3], 1, 1, "c10::BFloat16", 661),
    ([64, 48, 112, 112], [192, 48, 1, 1], 0, 1, "c10::BFloat16", 273),
    ([4, 128, 16001], [256, 128, 2], 0, 1, "float", 338),
    ([4, 128, 16512], [256, 128, 2], 0, 512, "float", 1086),
]


@pytest.mark.parametrize(("image", "weights", "padding", "dilation", "dtype", "microseconds"), _GRADIENTS)
def test_gradients_of_convolutions(image, weights, padding, dilation, dtype, microseconds) -> None:
    reach = [dilation * (size - 1) for size in weights[2:]]
    sizes = [size + 2 * padding - span for size, span in zip(image[2:], reach, strict=True)]
    dims, groups, biased = len(sizes), weights[0] // weights[1] if weights[1] == 1 else 1, dtype == "float"
    lists = [str([each] * dims) for each in (1, padding, dilation)]
    values = ["", "", "", "[]", *lists, "False", str([0] * dims), str(groups), f"[True, True, {biased}]"]
    shapes = [[image[0], weights[0], *sizes], image, weights, *[[]] * 8]
    types = [dtype] * 3 + ["Scalar"] * 8
    cost = cost_of_signature("aten::convolution_backward", *map(json.dumps, (shapes, types, values)))
    if cost.precision == "fp32":
        cost = replace(cost, precision="tf32")
    assert estimate_ns(cost, find("h100")) / 1e3 == pytest.approx(microseconds, rel=0.25)


def test_public_kernels(shared: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [row for row in public.rows(shared, 100, 3) if (row.source, row.family) != ("aiconfigurator", "gemm fp8")]
    model_errors = errors(rows)
    later = {key: error for key, error in model_errors.items() if key[1] not in _WITHOUT_TENSOR_CORES}
    assert {key: error for key, error in later.items() if error > _PUBLIC[key[0]]} == {}
    assert max(model_errors.values()) < 0.31
    assert np.mean(list(model_errors.values())) < 0.12
    assert len({gpu for _, gpu in model_errors}) == 11


def test_a_gpu_held_out_is_within_fifteen_percent() -> None:
    held_out = pd.read_csv(_DATA / "held_out.csv")
    assert held_out["calibrated"].mean() < 0.15
    assert set(held_out["gpu"]) >= {"t4", "v100-pcie", "a100-80gb-sxm", "l4", "l40s", "h100-sxm", "h200"}


def test_measured_times_are_above_what_memory_allows() -> None:
    """A cost that counted too many bytes would beat the bandwidth: of 100 MB and more, no kernel does."""
    large = [row for row in own.rows() if row.cost.bytes > 1e8 and row.cost.family not in ("gemm", "attention")]
    rate = {row.label: row.cost.bytes / row.nanoseconds for row in large}
    gathers = {"embedding", "index", "index_select", "gather_expanded", "kv_cat", "adamw_foreach"}
    bandwidth = find("h200").bandwidth_gbs
    assert len(large) > 300
    assert {label: value for label, value in rate.items() if value > bandwidth and label not in gathers} == {}
