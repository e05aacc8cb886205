"""Numbers, names and the headline."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import Analysis, BoundShares, Considered, Evidence, Source, say
from tracekit.reports.answer import headline
from tracekit.reports.words import (
    abstention,
    device,
    duration,
    in_sentence,
    inside,
    lower_first,
    middle_truncated,
    model,
    percent,
    printable,
    quantity,
    sentence,
    shortened,
    speedup,
    with_article,
)


@pytest.mark.parametrize(
    ("microseconds", "expected"),
    [(0, "0 µs"), (0.5, "0.500 µs"), (4.13, "4.13 µs"), (2104.5, "2.10 ms"), (1.5e6, "1.50 s"), (float("nan"), "–")],
)
def test_durations(microseconds: float, expected: str) -> None:
    assert duration(microseconds) == expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, "0 %"),
        (0.0004, "< 0.1 %"),
        (0.034, "3.4 %"),
        (0.87, "87 %"),
        (0.99961, "99.9 %"),
        (1, "100 %"),
        (1.2, "120 %"),
    ],
)
def test_percentages(share: float, expected: str) -> None:
    assert percent(share) == expected


def test_quantities() -> None:
    assert quantity(1.234e9, "FLOP") == "1.23 GFLOP"
    assert quantity(8, "B") == "8 B"
    assert quantity(124_439_808, "") == "124 M"
    assert quantity(float("nan"), "B") == "–"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(6.8, 8.1, "6.8–8.1×"), (1.08, 1.31, "1.08–1.31×"), (3.9, 12.2, "3.9–12×"), (11, 18.4, "11–18×"), (1, 1, "1.00×")],
)
def test_speedups(low: float, high: float, expected: str) -> None:
    assert speedup(Interval(low, (low + high) / 2, high)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt2", "GPT-2"),
        ("gpt2-medium", "GPT-2-medium"),
        ("mistral-7b", "Mistral-7B"),
        ("qwen2.5-0.5b", "Qwen2.5-0.5B"),
        ("/home/me/llama-1b/", "Llama-1B"),
        ("my-own", "my-own"),
    ],
)
def test_model_names(name: str, expected: str) -> None:
    assert model(name) == expected


@pytest.mark.parametrize(
    "spoken",
    [
        *("an H200", "a T4", "an A100 80GB SXM", "an L4", "an RTX 4090", "a GH200", "a GB200", "an MI300X", "a V100"),
        *("an H100", "an NVIDIA T4", "an AMD Instinct MI210", "an Instinct", "a Radeon VII", "a Quadro RTX 6000"),
        *("a GeForce", "a TITAN RTX", "a Xeon", "an Intel Arc", "an 8-core", "an h100", "a t4", "the CPU"),
    ],
)
def test_articles(spoken: str) -> None:
    assert with_article(spoken.split(" ", 1)[1]) == spoken


def test_every_gpu_has_an_article() -> None:
    spoken = {with_article(device(Source("measured", "x", "gpu", gpu.name, gpu))) for gpu in hardware.all_gpus()}
    wrong = {each for each in spoken if each.startswith("an ") != (each.split(" ")[1][0] in "AHLMR")}
    assert wrong == set()


ADD = "at::native::CUDAFunctor_add<float>"
KERNELS = {
    f"void at::native::vectorized_elementwise_kernel<4, {ADD}, std::array<char*, 3ul> >(int, {ADD})": (
        "CUDAFunctor_add<float>"
    ),
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_tn_align4>(cutlass_80_tensorop::Params)": (
        "gemm_256x128_16x3_tn_align4"
    ),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x": (
        "64x128x64"
    ),
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, int, bool)": (
        "9, false, false>"
    ),
}


@pytest.mark.parametrize(("name", "telling"), KERNELS.items())
@pytest.mark.parametrize("limit", [44, 60, 72])
def test_kernels_keep_what_tells_them_apart(name: str, telling: str, limit: int) -> None:
    short = shortened(name, limit)
    assert len(short) <= limit
    assert telling in short
    assert "at::" not in short
    assert shortened(name, len(name)) == name


@pytest.mark.parametrize("limit", range(14, 80))
def test_a_shape_is_never_cut(limit: int) -> None:
    name = "sm90_xmma_gemm_bf16bf16_bf16f32_tn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel"
    short = shortened(name, limit)
    assert len(short) <= limit
    assert "64x128x32" in short or not re.search(r"128x32|64x", short)


def test_names_are_shortened_in_the_middle() -> None:
    assert middle_truncated("abcdefghij", 10) == "abcdefghij"
    assert middle_truncated("abcdefghijk", 7) == "abcd…jk"
    assert inside("model.layers.0", "model") == "layers.0"
    assert inside("modelling", "") == "modelling"


def test_controls_and_marks_that_reorder_are_replaced() -> None:
    assert printable("a\u202eb\x1b[31mc\ud83d\u2066") == "a�b�[31mc��"
    assert printable("naïve λ 名") == "naïve λ 名"


def test_titles_keep_their_names() -> None:
    titles = ("Half precision", "CUDA graphs", "torch.compile", "TF32 GEMMs", "A batch 8 times as large")
    assert [lower_first(title) for title in titles] == [
        "half precision", "CUDA graphs", "torch.compile", "TF32 GEMMs", "a batch 8 times as large",
    ]  # fmt: skip


def test_words_agree_with_the_number_before_them() -> None:
    for copies, said in ((1, "1 copy per step between the GPU"), (2, "2 copies per step between the GPU")):
        share, counted = Evidence("share", 0.5, "kernels", "share"), Evidence("copies", copies, "step", "launches")
        assert sentence(say("pinned-copies", counted, share)).startswith(said)


def test_optimizations_inside_a_sentence() -> None:
    assert in_sentence("torch.compile, max-autotune") == "torch.compile with max-autotune"
    assert in_sentence("Half precision + Static KV cache + torch.compile, max-autotune") == (
        "half precision, static KV cache and torch.compile with max-autotune"
    )


def test_headline_of_a_launch_bound_run(analysis: Analysis) -> None:
    assert headline(analysis) == (
        "GPT-2 decode, batch 1, 512 tokens, fp32, on an H200: 87 % waiting for the host. CUDA graphs: 6.8–8.1×."
    )


def test_headline_of_a_run_that_may_gain(analysis: Analysis) -> None:
    perhaps = Considered(
        id="compile", title="torch.compile", reason=(say("may-not-pay"),), speedup=Interval(0.98, 1.44, 3.06)
    )
    bare = replace(analysis, recommendations=(), considered=(*analysis.considered[3:], perhaps))
    assert headline(bare).endswith("waiting for the host. Nothing is sure to help; torch.compile may (0.98–3.1×).")


def test_headline_says_that_it_is_modelled(modelled: Analysis) -> None:
    assert headline(modelled).startswith(
        "GPT-2 decode, batch 1, 512 tokens, fp32, modelled for a T4: 87 % waiting for the host"
    )


def test_headline_of_an_imported_trace(imported: Analysis) -> None:
    bare = replace(imported, recommendations=(), bound=BoundShares(0.1, 0.75, 0.1, 0.05, 0))
    assert headline(bare) == "GPT2LMHeadModel, fp32, on an H200: 75 % memory-bound. Nothing can be predicted."
    start = SimpleNamespace(timed="unprofiled", failed=None, idle_share=0.1)
    known: Any = replace(bare, predicted_from=start)  # type: ignore[arg-type]
    assert headline(known).endswith(". No optimization is predicted to help.")
    shapeless = replace(known, coverage=replace(known.coverage, cost=0.1))
    assert "to help, as far as known: the trace does not record shapes" in str(abstention(shapeless))
    assert abstention(known) == "No optimization that tracekit knows is predicted to help."
    assert str(abstention(bare)).startswith("Nothing can be predicted.")
    assert abstention(imported) is None
    assert headline(replace(bare, considered=())).endswith("on an H200: 75 % memory-bound.")
    assert headline(replace(bare, layers=bare.layers.iloc[:0])).startswith("This run, fp32, on an H200: 75 %")


def test_headline_names_the_model_inside_what_torch_wraps_around_it(imported: Analysis) -> None:
    layers = (
        imported.layers.iloc[:3]
        .reset_index(drop=True)
        .assign(
            type=["DistributedDataParallel", "OptimizedModule", "Net"], parent=[-1, 0, 1], depth=[0, 1, 2], share=1.0
        )
    )
    assert headline(replace(imported, layers=layers)).startswith("Net, fp32, on an H200")
    assert headline(replace(imported, layers=layers.iloc[:1])).startswith("This run, fp32")
    assert headline(replace(imported, layers=layers.assign(share=0.03))).startswith("This run, fp32")


def test_headline_without_a_main_bound(imported: Analysis) -> None:
    mixed = replace(imported, recommendations=(), considered=(), bound=BoundShares(0.3, 0.35, 0.25, 0.1, 0))
    assert headline(mixed) == (
        "GPT2LMHeadModel, fp32, on an H200: 35 % memory-bound, 30 % compute-bound, 25 % waiting for the host."
    )


def test_headline_of_a_cpu_trace_names_its_largest_op(imported: Analysis) -> None:
    source = replace(imported.source, device="cpu", gpu=None, device_name="")
    assert headline(replace(imported, source=source, recommendations=(), considered=())) == (
        "GPT2LMHeadModel, fp32, on the CPU: 64 % of the op time in aten::gemm."
    )


def test_work_of_unknown_bound_is_called_by_its_kernels(imported: Analysis) -> None:
    unknown = replace(imported, bound=BoundShares(0, 0, 0.2, 0.1, 0, unknown=0.7))
    assert ": 70 % fp32 GEMMs, 20 % waiting for the host. " in headline(unknown)
    assert unknown.bound.ranked()[0] == ("unknown", 0.7)
    assert "unknown" not in dict(imported.bound.ranked())


def test_every_gpu_has_a_short_name() -> None:
    names = [device(Source("measured", "tracekit", "gpu", gpu.name, gpu)) for gpu in hardware.all_gpus()]
    assert {"T4", "H200", "RTX 4090", "MI300X", "A100 80GB SXM"} <= set(names)
    assert [name for name in names if name.split()[0] in ("NVIDIA", "AMD", "GeForce")] == []
