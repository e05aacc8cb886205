"""GPU facts, their fallbacks, and the names they go by."""

import tomllib
from pathlib import Path

import pytest

from tracekit.analyzers.core import UnknownNameError
from tracekit.analyzers.cost import GPU, all_gpus, hardware
from tracekit.analyzers.cost.hardware import find, resolve
from tracekit.analyzers.cost.hardware import gpu as gpu_features
from tracekit.analyzers.cost.hardware.catalogue import measured
from tracekit.analyzers.cost.hardware.data_sheet import estimated_by_data_sheet

FITTED = ["t4", "v100-pcie", "a100-40gb-pcie", "a100-80gb-pcie", "a100-80gb-sxm", "l4", "l40s", "h100-sxm", "h200"]
NOT_MEASURED = ["a10", "a40", "l40", "rtx-6000-ada", "rtx-4090", "gh200", "mi300x"]
"""GPUs of which something is known beside the data sheet, but no rate of a product."""
ASKED_FOR = [
    "p100-pcie",
    "p100-sxm",
    "p4",
    "p40",
    "rtx-2060",
    "rtx-2070",
    "rtx-2080",
    "rtx-2080-ti",
    "titan-rtx",
    "quadro-rtx-6000",
    "a2",
    "a30",
    "a40",
    "rtx-a4000",
    "rtx-a5000",
    "rtx-a6000",
    "rtx-3060",
    "rtx-3060-ti",
    "rtx-3070",
    "rtx-3070-ti",
    "rtx-3080",
    "rtx-3080-ti",
    "rtx-3090-ti",
    "l20",
    "l40",
    "rtx-6000-ada",
    "rtx-4060",
    "rtx-4060-ti",
    "rtx-4070",
    "rtx-4070-ti",
    "rtx-4080",
    "h100-nvl",
    "h800-pcie",
    "h800-sxm",
    "h20",
    "rtx-5070",
    "rtx-5070-ti",
    "rtx-5080",
    "b300",
    "gb200",
    "gb300",
    "v100-sxm",
    "a10g",
    "a100-40gb-sxm",
    "rtx-3090",
    "rtx-5090",
    "h100-pcie",
    "b200",
    "mi210",
    "mi250",
    "mi250x",
    "mi300a",
    "mi325x",
    "mi350x",
    "mi355x",
]
IDS = [gpu.id for gpu in all_gpus()]
ORDER = ("fp64", "fp32", "tf32", "fp16", "fp8", "int8", "int4")


def test_every_named_gpu_has_one_row() -> None:
    assert len(IDS) == len(set(IDS))
    assert {*FITTED, *NOT_MEASURED, *ASKED_FOR} <= set(IDS)


def test_rows_have_the_same_fields() -> None:
    rows = tomllib.loads((Path(hardware.__file__).parent / "gpus.toml").read_text())
    assert list(rows) == IDS
    assert len({frozenset(row) for row in rows.values()}) == 1


def test_rows_of_what_was_measured_say_where_it_is_from() -> None:
    rows = tomllib.loads((Path(hardware.__file__).parent / "calibration.toml").read_text())
    assert set(rows) == {*FITTED, *NOT_MEASURED}
    assert all(row["basis"] for row in rows.values())
    assert {gpu_id for gpu_id, row in rows.items() if "fitted" in row} == set(FITTED)


def test_a_row_without_a_fitted_rate_says_that_it_is_estimated() -> None:
    assert {gpu.id for gpu in all_gpus() if gpu.is_estimated} == set(IDS) - set(FITTED)
    assert find("rtx-4090").basis.endswith("host: not measured, a desktop's")


def test_what_is_not_measured_is_that_of_gpus_alike() -> None:
    card, served = find("a100-40gb-pcie"), find("a100-80gb-sxm")
    assert (card.host_op_us.low, card.host_op_us.high) == (served.host_op_us.low, served.host_op_us.high)
    assert card.sustained["fp16"] < served.sustained["fp16"]  # its power limit is lower
    assert find("rtx-3060").host_op_us.expected == pytest.approx(find("rtx-4090").host_op_us.expected)
    assert find("b200").host_op_us.low == find("h200").host_op_us.low
    assert {gpu.launch_us for gpu in all_gpus()} == {find("h200").launch_us}


@pytest.mark.parametrize(("gpu_id", "precision"), [("a100-80gb-pcie", "fp32"), ("v100-pcie", "fp32"), ("h200", "fp16")])
def test_the_estimate_is_near_what_was_measured(gpu_id: str, precision: str) -> None:
    gpu, others = find(gpu_id), [gpu for gpu in measured() if gpu.id != gpu_id]
    fitted = {(other.id, each) for other in others for each in other.fitted}
    estimate = estimated_by_data_sheet(gpu, others, fitted).sustained[precision]
    assert estimate == pytest.approx(gpu.sustained[precision], rel=0.1)


@pytest.mark.parametrize("gpu", all_gpus(), ids=lambda gpu: gpu.id)
def test_rows_are_physically_ordered(gpu: GPU) -> None:
    peaks = [gpu.peaks_tflops[name] for name in ORDER if name in gpu.peaks_tflops]
    assert peaks == sorted(peaks)
    assert {"fp64", "fp32"} <= set(gpu.peaks_tflops)
    assert ("fp16" in gpu.peaks_tflops) == (gpu.supports("fp16-tensor") or gpu.compute_capability == (6, 0))
    assert ("bf16" in gpu.peaks_tflops) == gpu.supports("bf16")
    assert ("tf32" in gpu.peaks_tflops) == gpu.supports("tf32")
    assert gpu.peaks_tflops.get("bf16") in (None, gpu.peaks_tflops.get("fp16"))
    assert ("fp8" in gpu.peaks_tflops) == gpu.supports("fp8")
    assert ("int8" in gpu.peaks_tflops) == gpu.supports("int8-tensor")
    assert ("int4" in gpu.peaks_tflops) == gpu.supports("int4-tensor")
    assert all(0.2 < part <= 1 for part in gpu.sustained.values())
    assert 0.7 <= gpu.copy_efficiency <= 0.95
    assert 5 < gpu.host_op_us.low < gpu.host_op_us.expected < gpu.host_op_us.high < 70
    assert gpu.source and gpu.basis and gpu.driver_names


@pytest.mark.parametrize(
    "gpu", [gpu for gpu in all_gpus() if gpu.vendor == "nvidia" and gpu.id != "h20"], ids=lambda gpu: gpu.id
)
def test_fp32_peak_follows_from_cores_and_clock(gpu: GPU) -> None:
    cores = 64 if gpu.compute_capability in ((6, 0), (7, 0), (7, 5), (8, 0)) else 128
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
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-sxm-1g.10gb"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "a100-80gb-sxm-3g.40gb"),
        ("Tesla T4 MIG 1g.4gb", None),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200 NVL", "h200-nvl"),
        ("NVIDIA A40", "a40"),
        ("Tesla P100-PCIE-16GB", "p100-pcie"),
        ("AMD Instinct MI250X", "mi250x"),
        ("AMD Instinct MI250X / MI250", "mi250x"),
        ("AMD Instinct MI250", "mi250"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Quadro RTX 6000", "quadro-rtx-6000"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000", None),
        ("NVIDIA GeForce RTX 3080", "rtx-3080"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("NVIDIA H800", "h800-sxm"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA L20", "l20"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"),
        ("NVIDIA L40", "l40"),
        ("GRID T4-16Q", None),
        ("NVIDIA Graphics Device", None),
        ("", None),
    ],
)
def test_driver_names(name: str, gpu_id: str | None) -> None:
    known = resolve(name)
    assert (known.id if known else None) == gpu_id


def test_every_listed_driver_name_resolves_to_its_own_row() -> None:
    pairs = [(name, gpu.id) for gpu in all_gpus() for name in gpu.driver_names]
    assert [(name, getattr(resolve(name), "id", None)) for name, _ in pairs] == pairs


def test_multiprocessors_and_memory_tell_parts_and_slices_apart() -> None:
    def id_of(name: str, sms: int = 0, memory: int = 0) -> str | None:
        return getattr(resolve(name, sms, memory), "id", None)

    assert id_of("NVIDIA H100", 114) == "h100-pcie"
    assert id_of("NVIDIA H100", 132) == "h100-sxm"
    assert id_of("NVIDIA A100", memory=42_298_834_944) == "a100-40gb-sxm"
    assert id_of("NVIDIA GeForce RTX 3080", 70) == "rtx-3080-12gb"
    assert id_of("NVIDIA H100 80GB HBM3", 16, 10_468_982_784) == "h100-sxm-1g.10gb"
    assert id_of("NVIDIA GeForce RTX 3090", 40, 10_468_982_784) is None
    assert id_of("NVIDIA A100-SXM4-40GB", 42) is None
    big = resolve("Tesla V100-SXM2-32GB", 80, 34_079_637_504)
    assert big is not None and big.memory_gb == 34.1


def test_a_slice_has_its_share_of_the_gpu() -> None:
    slice_, whole = find("h100-sxm-3g.40gb"), find("h100-sxm")
    assert (slice_.sms, slice_.memory_gb, slice_.bandwidth_gbs) == (48, 40, whole.bandwidth_gbs / 2)
    assert slice_.peak_flops("bf16") == pytest.approx(whole.peak_flops("bf16") * 48 / 132)


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
    def with_feature(feature: str) -> set[str]:
        return {gpu.id for gpu in all_gpus() if gpu.supports(feature)}

    def of_architectures(*architectures: str) -> set[str]:
        return {gpu.id for gpu in all_gpus() if gpu.architecture in architectures}

    before_ampere, amd = of_architectures("pascal", "volta", "turing"), of_architectures("cdna2", "cdna3", "cdna4")
    assert with_feature("flash-attention") == with_feature("bf16") == set(IDS) - before_ampere
    assert with_feature("tf32") == set(IDS) - before_ampere - of_architectures("cdna2", "cdna4")
    assert with_feature("efficient-attention") == with_feature("cuda-graphs") == set(IDS)
    assert with_feature("compile") == set(IDS) - of_architectures("pascal")
    assert {"t4", "l4", "rtx-4070-ti-super"}.isdisjoint(with_feature("max-autotune-gemm"))
    assert {"a40", "rtx-3080", "h100-pcie", "mi300x"} <= with_feature("max-autotune-gemm")
    assert with_feature("cudnn-attention") == of_architectures("hopper") | {"b200", "b300", "gb200", "gb300"}
    assert with_feature("flash-attention-3") == of_architectures("hopper")
    assert with_feature("float8-dynamic") == of_architectures("hopper", "ada", "blackwell", "cdna3", "cdna4")
    assert not with_feature("int4-tensor") & (of_architectures("hopper", "blackwell") | amd)
    assert all(gpu.features <= gpu_features.FEATURES for gpu in all_gpus())
    with pytest.raises(UnknownNameError):
        find("t4").supports("flash-atention")


def test_a_gpu_is_a_cheap_key() -> None:
    assert hash(find("t4")) == hash(resolve("Tesla T4"))
    assert len({find("t4"), resolve("Tesla T4"), find("l4")}) == 2
