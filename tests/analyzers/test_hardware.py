"""GPU facts, their fallbacks, and the names they go by."""

import tomllib
from pathlib import Path

import pytest

from tracekit.analyzers import hardware
from tracekit.analyzers.errors import UnknownNameError
from tracekit.analyzers.hardware import GPU, all_gpus, find, resolve
from tracekit.analyzers.hardware import features as gpu_features

IDS = [
    "t4",
    "v100-pcie",
    "v100-sxm",
    "a10",
    "a10g",
    "a100-40gb-pcie",
    "a100-40gb-sxm",
    "a100-80gb-pcie",
    "a100-80gb-sxm",
    "l4",
    "l40s",
    "rtx-3090",
    "rtx-4090",
    "rtx-5090",
    "h100-pcie",
    "h100-sxm",
    "h200",
    "gh200",
    "b200",
    "mi300x",
]
ORDER = ("fp64", "fp32", "tf32", "fp16", "fp8", "int8", "int4")


def test_every_named_gpu_has_one_row() -> None:
    assert [gpu.id for gpu in all_gpus()] == IDS


@pytest.mark.parametrize("file", ["gpus.toml", "calibration.toml"])
def test_rows_have_the_same_fields(file: str) -> None:
    rows = tomllib.loads((Path(hardware.__file__).parent / file).read_text())
    assert list(rows) == IDS
    assert len({frozenset(row) for row in rows.values()}) == 1


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.id)
def test_rows_are_physically_ordered(gpu: GPU) -> None:
    peaks = [gpu.peaks_tflops[name] for name in ORDER if name in gpu.peaks_tflops]
    assert peaks == sorted(peaks)
    assert {"fp64", "fp32", "fp16"} <= set(gpu.peaks_tflops)
    assert ("bf16" in gpu.peaks_tflops) == ("tf32" in gpu.peaks_tflops) == gpu.supports("bf16")
    assert gpu.peaks_tflops.get("bf16", gpu.peaks_tflops["fp16"]) == gpu.peaks_tflops["fp16"]
    assert ("fp8" in gpu.peaks_tflops) == gpu.supports("fp8")
    assert ("int8" in gpu.peaks_tflops) == gpu.supports("int8-tensor")
    assert ("int4" in gpu.peaks_tflops) == gpu.supports("int4-tensor")
    assert all(0.2 < part <= 1 for part in gpu.sustained.values())
    assert 0.7 <= gpu.copy_efficiency <= 0.95
    assert 5 < gpu.host_op_us.low < gpu.host_op_us.expected < gpu.host_op_us.high < 70
    assert gpu.source and gpu.basis and gpu.driver_names


@pytest.mark.parametrize("gpu", [gpu for gpu in all_gpus() if gpu.vendor == "nvidia"], ids=lambda gpu: gpu.id)
def test_fp32_peak_follows_from_cores_and_clock(gpu: GPU) -> None:
    cores = 64 if gpu.compute_capability in ((7, 0), (7, 5), (8, 0)) else 128
    assert gpu.peaks_tflops["fp32"] == pytest.approx(gpu.sms * cores * 2 * gpu.clock_ghz / 1e3, rel=0.08)


def test_numbers_that_other_tables_get_wrong() -> None:
    l4, t4, rtx_5090 = find("l4"), find("t4"), find("rtx-5090")
    assert (l4.bandwidth, l4.sms, l4.supports("max-autotune-gemm")) == (300e9, 58, False)
    assert (t4.bandwidth, t4.sms, t4.peak_flops("fp16"), t4.l2_bytes) == (320e9, 40, 65e12, 4 * 2**20)
    assert (rtx_5090.bandwidth, rtx_5090.sms) == (1792e9, 170)
    assert find("NVIDIA H100 80GB HBM3").peak_flops("bf16") == 989e12
    assert find("h200").ridge("bf16") == pytest.approx(206.04, abs=0.01)
    assert find("a100-80gb-sxm").memory_bytes == 80 * 10**9


def test_missing_units_fall_back_to_the_units_that_do_the_work() -> None:
    t4, v100, a100, h100 = find("t4"), find("v100"), find("a100"), find("h100")
    assert t4.peak_flops("bf16") == t4.peak_flops("tf32") == 8.1e12
    assert (v100.runs_as("int8"), v100.peak_flops("int4")) == ("fp16", 125e12)
    assert (a100.runs_as("fp8"), a100.peak_flops("fp8")) == ("fp16", 312e12)
    assert (h100.runs_as("int4"), h100.peak_flops("int4")) == ("int8", 1979e12)
    assert t4.sustained_flops("fp32") == pytest.approx(t4.sustained["fp32"] * 8.1e12)
    assert a100.sustained_flops("bf16") == a100.sustained_flops("fp16")
    with pytest.raises(UnknownNameError):
        t4.peak_flops("fp3")


@pytest.mark.parametrize(
    ("name", "gpu_id"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("Tesla T4", "t4"),
        ("NVIDIA T4", "t4"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb-sxm"),
        ("A100-SXM4-40GB", "a100-40gb-sxm"),
        ("A100-PG509-200", "a100-40gb-sxm"),
        ("NVIDIA PG506-230", None),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("Tesla V100-SXM2-16GB", "v100-sxm"),
        ("Tesla V100-SXM2-32GB", "v100-sxm"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA B200", "b200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA L40", None),
        ("GRID T4-16Q", None),
        ("NVIDIA Graphics Device", None),
        ("", None),
    ],
)
def test_driver_names(name: str, gpu_id: str | None) -> None:
    found = resolve(name)
    assert (found.id if found else None) == gpu_id


def test_every_listed_driver_name_resolves_to_its_own_row() -> None:
    pairs = [(name, gpu.id) for gpu in all_gpus() for name in gpu.driver_names]
    assert [(name, getattr(resolve(name), "id", None)) for name, _ in pairs] == pairs


def test_multiprocessors_and_memory_tell_parts_and_slices_apart() -> None:
    def id_of(name: str, sms: int = 0, memory: int = 0) -> str | None:
        return getattr(resolve(name, sms, memory), "id", None)

    assert id_of("NVIDIA H100", 114) == "h100-pcie"
    assert id_of("NVIDIA H100", 132) == "h100-sxm"
    assert id_of("NVIDIA A100", memory=42_298_834_944) == "a100-40gb-sxm"
    assert id_of("NVIDIA H100 80GB HBM3", 16, 10_468_982_784) is None
    assert id_of("NVIDIA A100-SXM4-40GB", 42) is None
    big = resolve("Tesla V100-SXM2-32GB", 80, 34_079_637_504)
    assert big is not None and big.memory_gb == 34.1


def test_find_takes_ids_aliases_and_driver_names() -> None:
    assert [find(name).id for name in ("T4", " h200 ", "a100", "V100", "h100", "Tesla T4", "A100 40GB")] == [
        "t4",
        "h200",
        "a100-80gb-sxm",
        "v100-sxm",
        "h100-sxm",
        "t4",
        "a100-40gb-sxm",
    ]


def test_find_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError) as caught:
        find("h1000")
    assert "h100" in caught.value.hint
    with pytest.raises(UnknownNameError) as caught:
        find("???")
    assert "mi300x" in caught.value.hint


def test_features_follow_compute_capability() -> None:
    def having(feature: str) -> set[str]:
        return {gpu.id for gpu in all_gpus() if gpu.supports(feature)}

    ampere_on = set(IDS) - {"t4", "v100-pcie", "v100-sxm"}
    assert having("flash-attention") == having("bf16") == having("tf32") == ampere_on
    assert having("efficient-attention") == having("compile") == having("cuda-graphs") == set(IDS)
    assert having("max-autotune-gemm") == set(IDS) - {"t4", "l4"}
    assert having("cudnn-attention") == {"h100-pcie", "h100-sxm", "h200", "gh200", "b200"}
    hopper = {"h100-pcie", "h100-sxm", "h200", "gh200"}
    assert having("flash-attention-3") == hopper
    assert having("float8-dynamic") == hopper | {"l4", "l40s", "rtx-4090", "rtx-5090", "b200", "mi300x"}
    assert not having("int4-tensor") & (hopper | {"b200", "rtx-5090", "mi300x"})
    assert all(gpu.features <= gpu_features.FEATURES for gpu in all_gpus())
    with pytest.raises(UnknownNameError):
        find("t4").supports("flash-atention")


def test_a_gpu_is_a_cheap_key() -> None:
    assert hash(find("t4")) == hash(resolve("Tesla T4"))
    assert len({find("t4"), resolve("Tesla T4"), find("l4")}) == 2
