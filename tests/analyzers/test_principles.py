"""Principles of what is said first, on traces that each test makes; and the traces of other people, where they are."""

import re
from pathlib import Path

import numpy as np
import pytest
from handmade import Handmade, addmm
from msgspec.structs import replace

import tracekit
from tracekit.advise import recommend
from tracekit.advise.gains import usefulness
from tracekit.analyzers.attribute import is_communication, named_kind, named_precision
from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import start
from tracekit.analyzers.predict.transforms.attention import routes
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import DeviceProperties, Trace
from tracekit.reports.answer import headline, summary
from tracekit.reports.answer.headlines import LONGEST
from tracekit.reports.words import mean_step

OTHERS = Path(__file__).parents[3] / "shared" / "others"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def advised(trace: Trace) -> Analysis:
    return recommend(*start(trace))


def loop(steps: int, loading_us: float, every: int = 1) -> Handmade:
    """Steps of 1 ms of GEMMs; before every n-th of them the host loads a batch."""
    made, at = Handmade(), 0.0
    for step in range(steps):
        begin = at
        if step % every == every - 1:
            made.host("range", LOADER, at, loading_us)
            at += loading_us
        for _ in range(5):
            made.host("op", "aten::addmm", at, 30, **addmm(512, 512, 512))
            made.launched("volta_sgemm_128x64_tn", at + 5, at + 20, 200)
            at += 200
        at += 100
        made.host("range", f"ProfilerStep#{step}", begin, at - begin)
    return made


def test_stalls_between_typical_steps_count_by_their_mean() -> None:
    analysis = advised(loop(12, 20_000, every=4).trace())
    assert analysis.latency.profiled_us == pytest.approx(1_100 + 20_000 / 4, rel=0.2)
    assert analysis.recommendations[0].id == "data-loading"
    assert "waiting for the host (data loading)" in headline(analysis)


def test_advice_for_the_host_needs_no_known_gpu() -> None:
    analysis = advised(loop(4, 20_000).trace(gpu="Nobody's GPU"))
    assert analysis.source.gpu is None
    assert [each.id for each in analysis.recommendations] == ["data-loading"]
    objections = {each.id: each.objection for each in analysis.considered}
    assert "which the trace does not name" in str(objections["tf32"])


def test_a_gpu_is_recognized_by_its_properties() -> None:
    volta = hardware.resolve("Tesla V100-DGXS-32GB", 80, 34_084_028_416, (7, 0))
    assert volta is not None and volta.id == "v100-sxm" and volta.memory_gb == pytest.approx(34.1)
    nameless = hardware.resolve("", 304, 206_141_652_992, (9, 4))
    assert nameless is not None and nameless.id == "mi300x"
    assert hardware.resolve("", 0, 34_084_028_416, (7, 0)) is None
    assert hardware.resolve("", 80, 34_084_028_416, (0, 0)) is None
    assert hardware.resolve("Another", 77, 34_084_028_416, (7, 0)) is None


@pytest.mark.parametrize(
    ("kernel", "precision", "kind"),
    [
        ("volta_sgemm_128x64_tn", "fp32", "GEMMs"),
        ("nvjet_sm90_tst_64x8_64x16_1x2_h_bz_TNT", "bf16", "GEMMs"),
        ("nvjet_hsh_128x64", "fp16", "GEMMs"),
        ("ampere_fp16_s16816gemm_fp16_128x256_ldg8_f2f_stages_64x3_nn", "fp16", "GEMMs"),
        ("sm86_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32", "tf32", "convolutions"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1", "fp4", "GEMMs"),
        ("Cijk_Alik_Bljk_BBS_BH_MT128x256x32", "bf16", "GEMMs"),
        ("fmha_v2_flash_attention_fp16_128_causal_sm80_kernel", "fp16", "attention"),
        ("dag_lts_kernel", "", ""),
    ],
)
def test_the_name_of_a_kernel_says_its_kind_and_precision(kernel: str, precision: str, kind: str) -> None:
    assert (named_precision(kernel), named_kind(kernel)) == (precision, kind)


def test_communication_is_recognized_by_whatever_library() -> None:
    moves = ["dpsk::ep::internode::dispatch<true>(int)", "intranode_combine", "nvshmemi_put", "cached_notify_combine"]
    keeps = ["layer_norm", "_combined_routing_compute", "FlashAttnFwdCombine", "interpolate"]
    assert is_communication(np.array([*moves, *keeps], dtype=object)).tolist() == [True] * 4 + [False] * 4


def test_launches_without_device_events_are_a_gpu_that_was_not_recorded() -> None:
    made = Handmade().host("op", "aten::mm", 0, 50).host("runtime", "cudaLaunchKernel", 5, 3, correlation=1)
    said = headline(advised(made.trace()))
    assert "1 calls put work on a GPU that was not recorded" in said and "CPU" not in said


@pytest.mark.parametrize(
    ("op", "gpu", "said"),
    [
        ("aten::cudnn_convolution", "", r"1 calls put work on a GPU that was not recorded"),
        ("aten::_scaled_dot_product_flash_attention", "", r"1 calls put work on a GPU that was not recorded"),
        ("aten::_mps_convolution", "", r"1 ops ran on a Mac's GPU, which torch.profiler does not record"),
        ("aten::addmm", "Tesla T4", r"only the host was recorded. If a GPU ran it"),
        ("aten::cudnn_is_acceptable", "", r"on the CPU: 100 %"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "", r"on the CPU: 100 %"),
    ],
)
def test_a_recording_of_the_host_is_on_the_cpu_only_if_nothing_says_otherwise(op: str, gpu: str, said: str) -> None:
    found = headline(advised(Handmade().host("op", op, 0, 50).trace(gpu)))
    assert re.search(said, found) and ("CPU" in found) == ("CPU" in said), found


def test_a_gpu_known_by_its_properties_keeps_the_name_that_was_recorded() -> None:
    for name, called in (("NVIDIA Z900", "on a Z900"), ("", "on an H200"), ("NVIDIA H200", "on an H200")):
        trace = loop(4, 20_000).trace()
        like = DeviceProperties(0, name, 132, (9, 0), 150_109_880_320)
        analysis = advised(replace(trace, metadata=replace(trace.metadata, devices=(like,))))
        assert called in headline(analysis) and analysis.source.gpu is not None and analysis.source.gpu.id == "h200"
        told = (analysis.problems["code"] == "gpu-by-properties").any()
        assert told == (name != "NVIDIA H200") and "imported, gpu" not in summary(analysis)


def test_without_recorded_launches_idle_time_is_said_and_not_sold() -> None:
    made = loop(4, 20_000)
    for kept in ("op", "range"), ():
        rows = [row for row in made.host_rows if row["category"] in kept]
        analysis = advised(replace(made, host_rows=rows).trace())
        said = r"9\d % idle\. Nothing can be advised for it: the trace does not record the launches"
        assert re.search(said, headline(analysis))
        assert not analysis.recommendations and "unexplained" not in set(analysis.idle_causes["cause"])


def test_work_without_shapes_is_called_by_its_kernels() -> None:
    made = Handmade()
    for at in range(20):
        made.launched("ampere_fp16_s16816gemm_fp16_128x256", 1 + at * 5, 10 + at * 1_000, 990)
    said = headline(advised(made.trace("NVIDIA A100-SXM4-80GB")))
    assert re.search(r", fp16, on an A100.*: GPU busy 9\d.*% fp16 GEMMs", said)


def test_a_kernel_whose_name_tells_no_kind_is_called_by_its_op() -> None:
    made = Handmade()
    for at in range(20):
        made.host("op", "aten::_linalg_svd", at * 1_000, 100).launched(
            "batched_svd", at * 1_000 + 5, 10 + at * 1_000, 990
        )
    assert re.search(r"GPU busy 9\d.*% in aten::_linalg_svd", headline(advised(made.trace("NVIDIA A100-SXM4-80GB"))))


def test_a_sum_of_the_little_that_is_counted_is_not_shown() -> None:
    made = Handmade().host("op", "aten::linear", 0, 100).launched("sgemm", 5, 10, 990)
    made.launched("Memset (Device)", 20, 1_010, 10, category="memset", bytes=1 << 20)
    ops = advised(made.trace()).ops
    assert ops["bytes"].tolist() == [1 << 20]
    shown = mean_step(advised(made.trace())).ops
    assert shown[["flops", "bytes"]].isna().all(axis=None)


def test_a_recording_of_start_up_says_to_record_after_warm_up_and_sells_nothing() -> None:
    made = loop(1, 0)
    made.host("runtime", "cudaMalloc", 200_000, 900_000).launched("k", 1_100_010, 1_100_020, 50)
    analysis = advised(made.trace())
    assert "mostly start-up" in headline(analysis) and "record after warm-up" in headline(analysis)
    assert not analysis.recommendations and not analysis.plan


def test_a_step_that_is_not_reproduced_still_gets_advice_and_keeps_the_rest() -> None:
    _, base = start(loop(4, 20_000).trace())
    assert base is not None
    kept = replace(base, rest_ns=5e6)
    assert kept.simulate(kept.ops) == base.latency_ns + 5e6


def test_experts_that_gather_their_weights_are_no_attention() -> None:
    assert routes(["aten::bmm", "aten::_softmax", "aten::topk", "aten::index", "aten::bmm"])
    assert not routes(["aten::bmm", "aten::div", "aten::masked_fill", "aten::_softmax", "aten::dropout", "aten::bmm"])


def test_what_is_sure_and_easy_comes_first() -> None:
    sure, open_, wide = Interval(1.2, 1.4, 1.6), Interval(0.7, 1.4, 3.0), Interval(1.0, 2.0, 6.0)
    assert usefulness(sure, 1.0) > usefulness(open_, 1.0) > 0
    assert usefulness(sure, 1.0) > usefulness(sure, 2.0)
    assert usefulness(wide, 4.0) < usefulness(sure, 1.0)
    assert usefulness(Interval(0.5, 0.9, 1.1), 1.0) == 0
    assert usefulness(Interval(1.7, 2.2, 2.3), 1.0) > usefulness(Interval(1.05, 2.3, 3.1), 1.0)


SAID = {
    "deepview_raw": r"GPU busy 99",
    "ds_train": r"communication",
    "gpumode_square": r"aten::randn",
    "hta_alexnet": r"mostly start-up",
    "hta_negative_queue": r"idle with work queued.*exposed communication",
    "incredere_fp32": r"data loading",
    "k_resnet50_autograd_nw4": r"mostly start-up",
    "k_resnet50_nw0": r"V100.*[Dd]ata loading",
    "kf_log": r"matmul_k",
    "kf_transformer": r"CUDA graphs",
    "llmprof_a800": r"GPU busy 99.*fp16 GEMMs",
    "ns_cloverleaf": r"GPU busy 89 %",
    "ns_memfusion": r"GPU busy 99 %; 91 % fp16 convolutions",
    "ns_p4arth": r"copying|copies",
    "ns_tri_la": r"waiting for the host \(allocating memory\)",
    "param_linear": r"fp32 GEMMs.*waiting for the host",
    "param_resnet": r"data loading",
    "particle_single": r"mostly start-up",
    "tl_moe05": r"gathers",
    "tl_norm_layer": r"mostly start-up",
    "tl_sglang_prefilldecode": r"compute-bound",
    "tl_vllm_decode_full": r"MI300X: GPU busy 9.*fp4 GEMMs",
    "tm_mi300x": r"waiting for the host \(vllm.model_executor.models.llama.forward\)",
    "zoology": r"GPU that was not recorded",
}


@pytest.mark.parametrize("name", SAID)
def test_an_expert_would_sign_the_headline(name: str) -> None:
    """What an engineer who read the raw events wrote, in our words."""
    if not OTHERS.exists():
        pytest.skip("the traces of other people are not here")
    (path,) = OTHERS.glob(f"{name}.*")
    said = headline(tracekit.analyze(path))
    assert re.search(SAID[name], said), said
    assert len(said) <= LONGEST
    assert not re.search(r"`|at least 1\.0|bound is unknown|undetermined", said)
