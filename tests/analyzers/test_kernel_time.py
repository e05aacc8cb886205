"""The kernel time model: known times, physical bounds, and its error on public measurements."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tracekit.analyzers.cost import GPU, Access, Attention, Cost, Family, Precision, Product, all_gpus, estimate_ns
from tracekit.analyzers.cost.hardware import find
from tracekit.analyzers.cost.ops.work import Softmax
from tracekit.analyzers.cost.time.attention import backend
from tracekit.analyzers.cost.time.estimate import roofline_seconds
from tracekit.analyzers.cost.time.memory_bound import kind

_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
_FAMILIES: list[Family] = [
    "pointwise",
    "copy",
    "gather",
    "embedding",
    "norm",
    "softmax",
    "reduction",
    "loss",
    "optimizer",
    "convolution",
    "other",
]

gpus = st.sampled_from(all_gpus())
precisions = st.sampled_from(["fp32", "tf32", "fp16", "bf16"])
sides = st.integers(1, 20_000)


def product(m: int, n: int, k: int, precision: Precision = "bf16", batch: int = 1) -> Cost:
    size = _BYTES[precision]
    return Cost(
        flops=2 * batch * m * n * k,
        read_bytes=batch * (m * k + k * n) * size,
        write_bytes=batch * m * n * size,
        family="gemm",
        precision=precision,
        weight_bytes=n * k * size if batch == 1 else 0,
        work=Product(batch, m, n, k),
    )


def attention(batch: int, heads: int, queries: int, keys: int, head_dim: int, precision: Precision = "fp16") -> Cost:
    causal = queries == keys
    size = _BYTES[precision]
    return Cost(
        flops=4 * batch * heads * queries * keys * head_dim // (2 if causal else 1),
        read_bytes=batch * heads * (queries + 2 * keys) * head_dim * size,
        write_bytes=batch * heads * queries * head_dim * size,
        family="attention",
        precision=precision,
        work=Attention(batch, heads, heads, queries, keys, head_dim, causal),
    )


def moved(family: Family, read: int, write: int, access: Access = "linear", row: int = 0) -> Cost:
    return Cost(0, read, write, family, "fp32", access=access, row=row)


def convolution(batch: int, channels: int, side: int, out: int, window: int, precision: Precision) -> Cost:
    """The cost of a convolution of stride 1 whose padding keeps the size of the image, in channels-last layout."""
    positions, depth, size = batch * side * side, channels * window * window, _BYTES[precision]
    return Cost(
        flops=2 * positions * out * depth,
        read_bytes=(positions * channels + out * depth) * size,
        write_bytes=positions * out * size,
        family="convolution",
        precision=precision,
        weight_bytes=out * depth * size,
        work=Product(1, positions, out, depth),
        run=channels,
    )


def scaled(gpu: GPU, factor: int) -> GPU:
    """A GPU with more of everything; its id differs, as it is another GPU."""
    return replace(
        gpu,
        id=f"{gpu.id}-x{factor}",
        sms=gpu.sms * factor,
        bandwidth_gbs=gpu.bandwidth_gbs * factor,
        l2_mb=gpu.l2_mb * factor,
        peaks_tflops={name: peak * factor for name, peak in gpu.peaks_tflops.items()},
    )


@pytest.mark.parametrize(
    ("cost", "gpu", "microseconds"),
    [
        (product(1, 8192, 2048), "h200", 10.7),
        (product(1, 128256, 2048), "h200", 123.3),
        (product(512, 2304, 768, "fp32"), "h200", 62.5),
        (product(512, 50257, 768, "fp32"), "h200", 809.2),
        (product(8944, 2816, 1024), "h100-sxm", 83.7),
        (product(8944, 1024, 2816), "h100-sxm", 75.6),
        (moved("pointwise", 268_435_456, 134_217_728), "h200", 91.3),
        (moved("softmax", 12_582_912, 12_582_912, row=512), "h200", 7.0),
        (moved("reduction", 268_435_456, 65_536, "rows", 4096), "h200", 64.6),
        (moved("reduction", 1_610_612_736, 536_870_912, "rows", 3), "h200", 1831.0),
        (moved("reduction", 100_663_296, 33_554_432, "rows", 3), "h200", 119.0),
        (moved("copy", 36_634_624, 36_634_624, "indexed"), "h100-sxm", 42.0),
        (moved("reduction", 8_388_608, 8_388_608, "scan", 1024), "h200", 30.0),
        (moved("reduction", 9_723_904, 19_447_808 + 9_723_904, "sort", 151_936), "h200", 225.0),
        (moved("reduction", 201_326_592, 3_072, "columns", 65_536), "h200", 81.5),
        (moved("softmax", 411_705_344, 411_705_344, row=50_257), "h200", 381.0),
        (convolution(32, 128, 28, 128, 3, "bf16"), "h200", 18.1),
        (convolution(1, 128, 28, 128, 3, "bf16"), "h200", 7.4),
    ],
)
def test_near_kernels_of_real_traces(cost: Cost, gpu: str, microseconds: float) -> None:
    assert estimate_ns(cost, find(gpu)) / 1e3 == pytest.approx(microseconds, rel=0.2)


@pytest.mark.parametrize("gpu", ["a100-80gb-sxm", "h100-sxm", "h200", "l40s", "t4", "v100-sxm"])
def test_large_products_reach_the_sustained_rate(gpu: str) -> None:
    card = find(gpu)
    cost = product(16384, 16384, 16384, "fp16")
    achieved = cost.flops / estimate_ns(cost, card) * 1e9
    assert achieved == pytest.approx(card.sustained_flops("fp16"), rel=0.06)


def test_one_row_streams_the_weights() -> None:
    h100 = find("h100")
    small, large = (estimate_ns(product(1, n, 8192), h100) for n in (8192, 65536))
    rate = (65536 - 8192) * 8192 * 2 / (large - small) * 1e9
    assert rate == pytest.approx(2.96e12, rel=0.03)


def test_attention_takes_the_backend_that_the_gpu_has() -> None:
    half, full = attention(1, 12, 512, 512, 64), attention(1, 12, 512, 512, 64, "fp32")
    assert [backend(half, find(name)) for name in ("t4", "v100", "a100", "l4", "h100", "mi300x", "rtx-5090")] == [
        "efficient",
        "efficient",
        "flash2",
        "flash2",
        "cudnn",
        "flash2",
        "flash2",
    ]
    assert backend(full, find("h100")) == "efficient-fp32"
    assert backend(replace(half, work=replace(half.work, backend="flash")), find("h100")) == "flash2"
    assert backend(replace(half, work=replace(half.work, backend="efficient")), find("h100")) == "efficient"


def test_decode_attention_streams_keys_and_values() -> None:
    h200 = find("h200")
    short, long = (estimate_ns(attention(64, 32, 1, keys, 128), h200) for keys in (4096, 32768))
    read = 64 * 32 * 2 * (32768 - 4096) * 128 * 2
    assert 0.6 * h200.bandwidth < read / (long - short) * 1e9 < 0.95 * h200.bandwidth


def test_bf16_without_units_costs_fp32_time() -> None:
    t4 = find("t4")
    assert estimate_ns(product(1024, 1024, 1024, "bf16"), t4) > 4 * estimate_ns(product(1024, 1024, 1024, "fp16"), t4)


@settings(max_examples=60, deadline=None)
@given(gpu=gpus, precision=precisions, batch=st.integers(1, 64), m=sides, n=sides, k=sides)
def test_products_are_never_faster_than_the_roofline(
    gpu: GPU, precision: Precision, batch: int, m: int, n: int, k: int
) -> None:
    cost = product(m, n, k, precision, batch)
    nanoseconds = estimate_ns(cost, gpu)
    assert nanoseconds >= cost.flops / gpu.peak_flops(precision) * 1e9
    assert nanoseconds >= roofline_seconds(cost, gpu) * 1e9
    if cost.bytes > gpu.l2_bytes:
        assert nanoseconds >= cost.bytes / gpu.bandwidth * 1e9
    assert nanoseconds > 1e3


@settings(max_examples=60, deadline=None)
@given(
    gpu=gpus,
    batch=st.integers(1, 64),
    heads=st.sampled_from([1, 12, 32]),
    queries=st.integers(1, 4096),
    past=st.integers(0, 4096),
    head_dim=st.sampled_from([64, 128]),
)
def test_attention_is_never_faster_than_the_roofline(
    gpu: GPU, batch: int, heads: int, queries: int, past: int, head_dim: int
) -> None:
    cost = attention(batch, heads, queries, queries + past, head_dim)
    assert estimate_ns(cost, gpu) >= cost.flops / gpu.peak_flops("fp16") * 1e9
    if cost.bytes > gpu.l2_bytes:
        assert estimate_ns(cost, gpu) >= cost.bytes / gpu.bandwidth * 1e9


@settings(max_examples=100, deadline=None)
@given(gpu=gpus, family=st.sampled_from(_FAMILIES), size=st.integers(0, 10**9), more=st.integers(1, 10**9))
def test_more_bytes_never_take_less_time(gpu: GPU, family: Family, size: int, more: int) -> None:
    less, all_of_it = moved(family, size, size // 2), moved(family, size + more, (size + more) // 2)
    assume(kind(less) == kind(all_of_it))  # a loss that writes a tensor is a backward pass, of fewer kernels
    less_time = estimate_ns(less, gpu)
    assert less_time <= estimate_ns(all_of_it, gpu)
    if size * 3 // 2 > gpu.l2_bytes:
        assert less_time >= (size + size // 2) / gpu.bandwidth * 1e9


@settings(max_examples=60, deadline=None)
@given(
    gpu=gpus, factor=st.integers(2, 4), family=st.sampled_from(_FAMILIES), size=st.integers(1, 10**9), m=sides, n=sides
)
def test_more_of_everything_is_never_slower(gpu: GPU, factor: int, family: Family, size: int, m: int, n: int) -> None:
    bigger = scaled(gpu, factor)
    queries = max(1, m // 16)
    for cost in (moved(family, size, size), product(m, n, 1024, "fp16"), attention(2, 12, queries, queries, 64)):
        assert estimate_ns(cost, bigger) <= estimate_ns(cost, gpu) * (1 + 1e-9)


def test_which_kernel_a_row_gets() -> None:
    rows = (512, 2048, 4096, 50_257)
    kinds = ["softmax", "softmax-wide", "softmax-shared", "softmax-long"]
    assert [kind(moved("softmax", 4 * row, 4 * row, row=row)) for row in rows] == kinds
    gradient = replace(moved("softmax", 0, 0), work=Softmax(backward=True))
    backward = [kind(replace(gradient, read_bytes=8 * row, write_bytes=4 * row, row=row)) for row in rows]
    assert backward == ["softmax-backward", *["softmax-backward-long"] * 3]


def test_convolutions_change_layouts_and_want_whole_vectors_of_channels() -> None:
    h200, last = find("h200"), convolution(32, 128, 28, 128, 3, "tf32")
    first = replace(last, access="transposed")
    moved_twice = 2 * last.bytes / h200.bandwidth * 1e9
    assert estimate_ns(first, h200) > estimate_ns(last, h200) + moved_twice
    assert estimate_ns(replace(first, run=3), h200) > 3 * estimate_ns(first, h200)
    v100 = find("v100-sxm")
    assert estimate_ns(replace(first, run=3), v100) == estimate_ns(last, v100)


def test_an_estimate_is_cached_by_cost_and_gpu() -> None:
    cost = product(3, 5, 7)
    estimate_ns(cost, find("l4"))
    hits = estimate_ns.cache_info().hits
    assert estimate_ns(product(3, 5, 7), find("l4")) == estimate_ns(cost, find("NVIDIA L4"))
    assert estimate_ns.cache_info().hits == hits + 2


@pytest.mark.parametrize("cost", [product(0, 8, 8), product(8, 8, 8, batch=0), attention(1, 12, 1, 0, 64)])
def test_empty_inputs_take_the_time_of_an_empty_kernel(cost: Cost) -> None:
    assert 1e3 < estimate_ns(cost, find("a100")) < 5e3


def test_a_scan_down_columns_takes_a_step_for_each_row():
    scan = Cost(8 << 20, 32 << 20, 32 << 20, "reduction", "fp32", access="scan-columns", row=1024)
    taller = replace(scan, row=4096)
    times = [estimate_ns(each, find("h100")) for each in (scan, taller)]
    assert kind(scan) == "scan-columns"
    assert 3.5 < times[1] / times[0] < 4.1
    wider = replace(scan, read_bytes=64 << 20, write_bytes=64 << 20, flops=16 << 20)
    assert estimate_ns(wider, find("h100")) == pytest.approx(times[0], rel=0.01)
