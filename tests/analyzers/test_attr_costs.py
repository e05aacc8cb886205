"""FLOPs and bytes of work, and its place under the roofs."""

import math

import numpy as np
import pytest
from handmade import Handmade, addmm

from tracekit.analyzers import analyze
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import start
from tracekit.analyzers.trace import CaptureInfo
from tracekit.analyzers.trace.ranges import module

H200 = hardware.find("h200")
ADDMM = addmm(64, 256, 512)
FLOPS = 2 * 64 * 256 * 512
"""FLOPs of the products alone; a bias adds at most 64 x 512."""


def capture(**values):
    known = {"source": "measured", "device": "cuda", "gpu": "h200", "device_name": "NVIDIA H200"}
    return CaptureInfo(version="0", **{**known, **values})


def codes(analysis):
    return dict(zip(analysis.problems["code"], analysis.problems["count"], strict=True))


def test_an_op_splits_its_cost_over_its_kernels_by_duration():
    made = Handmade().host("op", "aten::addmm", 0, 50, **ADDMM)
    work = analyze(made.launched("a", 5, 60, 30).launched("b", 10, 90, 10).trace()).work
    assert work.flops.sum() == pytest.approx(FLOPS, rel=0.01)
    assert work.flops.tolist() == pytest.approx([work.flops.sum() * 0.75, work.flops.sum() * 0.25])
    assert work.bytes[0] == pytest.approx(3 * work.bytes[1])


def test_a_memset_inside_a_product_keeps_its_own_bytes():
    made = Handmade().host("op", "aten::addmm", 0, 50, **ADDMM)
    made.launched("Memset (Device)", 2, 50, 1, call="cudaMemsetAsync", category="memset", bytes=4096)
    work = analyze(made.launched("gemm", 5, 60, 30).trace()).work
    assert work.bytes[0] == 4096
    assert work.flops.tolist() == [0, pytest.approx(FLOPS, rel=0.01)]


def test_a_product_in_tf32_after_a_fill_is_one_in_tf32():
    made = Handmade().host("op", "aten::addmm", 0, 50, **ADDMM)
    made.launched("Memset (Device)", 2, 50, 1, call="cudaMemsetAsync", category="memset", bytes=4096)
    _, base = start(made.launched("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n", 5, 60, 30).trace())
    assert base is not None and [cost.precision for cost in base.ops.cost] == ["tf32"]


def test_a_composite_op_is_not_charged_again():
    made = Handmade().host("op", "aten::linear", 0, 60, shapes="[[64,256],[512,256],[512]]")
    made.host_rows[-1] |= {"dtypes": '["float","float","float"]', "values": '["","",""]'}
    made.host("op", "aten::addmm", 5, 20, **ADDMM).host("op", "unknown::pad", 30, 20)
    work = analyze(made.launched("gemm", 10, 60, 30).launched("pad", 35, 90, 10).trace()).work
    assert work.flops.sum() == pytest.approx(FLOPS, rel=0.01)
    assert work.cost_op.tolist()[1] == -1
    assert math.isnan(work.flops[1])


def test_products_of_experts_are_one_op_however_they_are_launched():
    """With fp32, PyTorch loops over the experts."""
    grouped = {"shapes": "[[4,256],[4,256,512],[4]]", "dtypes": '["float","float","int"]', "values": '["","",""]'}
    each = {"shapes": "[[1,256],[256,512]]", "dtypes": '["float","float"]', "values": '["",""]'}
    made = Handmade().host("op", "aten::_grouped_mm", 0, 90, **grouped)
    for i in range(4):
        made.host("op", "aten::mm", 5 + 20 * i, 10, **each)
        made.launched("gemm", 6 + 20 * i, 100 + 10 * i, 10)
    work = analyze(made.trace()).work
    assert work.cost_op.tolist() == [0] * 4
    assert work.flops.sum() == pytest.approx(2 * 4 * 256 * 512)


def test_instances_of_one_class_that_differ_are_costed_by_themselves():
    """An estimate must not multiply one instance's work by the number of instances, nor exceed the busy time."""
    made, flops = Handmade(), []
    for i, k in enumerate((64, 256, 1024)):
        made.host("range", module(f"fc.{i}", "Linear"), 100 * i, 90)
        made.host("op", "aten::addmm", 100 * i + 5, 50, **addmm(64, k, 512))
        made.launched("gemm", 100 * i + 10, 100 * i + 20, 10 * (i + 1))
        flops.append(2 * 64 * k * 512)
    analysis = analyze(made.trace())
    linear = analysis.layer_types.iloc[0]
    assert (linear.layers, linear.busy_ns) == (3, 60_000)
    assert linear.flops == pytest.approx(sum(flops), rel=0.02)
    assert analysis.layers.flops.tolist() == pytest.approx(flops, rel=0.03)
    assert linear.busy_ns <= analysis.timeline.busy_ns


@pytest.mark.parametrize(
    ("name", "bytes_moved", "bandwidth"),
    [
        ("Memcpy HtoD (Pageable -> Device)", 1e6, H200.pcie_gbs * 1e9),
        ("Memcpy DtoH (Device -> Pinned)", 1e6, H200.pcie_gbs * 1e9),
        ("Memcpy PtoP (Device -> Device)", 1e6, H200.nvlink_gbs / 2 * 1e9),
        ("Memcpy DtoD (Device -> Device)", 2e6, H200.bandwidth),
    ],
)
def test_copies_are_held_against_their_own_link(name, bytes_moved, bandwidth):
    made = Handmade().launched(name, 0, 10, 100, call="cudaMemcpyAsync", category="memcpy", bytes=1_000_000)
    work = analyze(made.trace()).work.iloc[0]
    assert work.bytes == bytes_moved
    assert work.roof_fraction == pytest.approx(bytes_moved / bandwidth / 100e-6)
    assert (work.bound == "transfer") == ("DtoD" not in name)


def precision(kernel, capture_info=None, dtype="float"):
    made = Handmade().host("op", "aten::addmm", 0, 50, **addmm(64, 256, 512, dtype)).launched(kernel, 5, 60, 30)
    return analyze(made.trace(capture=capture_info)).work.precision[0]


def test_tf32_by_the_name_of_the_kernel_or_the_capture():
    assert precision("ampere_sgemm_128x64_tn") == "fp32"
    assert precision("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n") == "tf32"
    assert precision("cutlass_80_tensorop_s1688gemm_128x128") == "tf32"
    assert precision("gemm", capture(dtype="tf32")) == "tf32"
    assert precision("gemm", capture(dtype="fp32")) == "fp32"
    assert precision("cutlass_80_tensorop_s16816gemm_bf16", dtype="c10::BFloat16") == "bf16"


def test_roof_fraction_is_the_larger_roof_time_over_the_measured_time():
    made = Handmade().host("op", "aten::addmm", 0, 50, **addmm(4096, 4096, 4096))
    work = analyze(made.launched("gemm", 5, 60, 4000, blocks=1000).trace()).work.iloc[0]
    assert work.roof_fraction == pytest.approx(work.flops / H200.peak_flops("fp32") / 4e-3)
    assert work.intensity == pytest.approx(work.flops / work.bytes)
    assert work.bound == "compute"


def test_above_the_memory_roof_is_explained_by_the_l2_or_doubted():
    def run(rows, duration_us, **made_by):
        shapes = {"shapes": f"[[{rows},1024]]", "dtypes": '["float"]', "values": '[""]'}
        made = Handmade().host("op", "aten::neg", 0, 50, **shapes).launched("k", 5, 60, duration_us)
        return analyze(made.trace(**made_by))

    small, large = run(1024, 1), run(1024 * 1024, 500)
    assert small.work.roof_fraction[0] > 1
    assert large.work.roof_fraction[0] > 1
    assert codes(small) == {"no-layers": 1, "above-roof-l2": 1}
    assert codes(large) == {"no-layers": 1, "above-roof": 1}
    modelled = {"capture": capture(source="modelled")}
    assert codes(run(1024, 1, **modelled)) == {"no-layers": 1}
    assert codes(run(1024 * 1024, 500, **modelled)) == {"no-layers": 1, "above-roof": 1}


def test_above_the_compute_roof_is_never_explained_by_the_l2():
    made = Handmade().host("op", "aten::addmm", 0, 50, **addmm(512, 512, 512)).launched("k", 5, 60, 1)
    assert codes(analyze(made.trace()))["above-roof"] == 1


def test_generated_kernels_read_their_inputs_once():
    signature = {
        "shapes": "[[1024,1024],[1024],[]]",
        "dtypes": '["c10::Half","float","Scalar"]',
        "values": '["","","1"]',
    }
    made = (
        Handmade().host("op", "triton_poi_fused_add_0", 0, 50, **signature).launched("triton_poi_fused_add_0", 5, 60, 9)
    )
    analysis = analyze(made.trace())
    assert analysis.work.bytes.tolist() == [1024 * 1024 * 2 + 1024 * 4]
    assert np.isnan(analysis.work.flops[0])
    assert codes(analysis)["estimated-bytes"] == 1
    assert analysis.coverage.cost == 1


def test_the_gpu_is_the_one_that_ran_it():
    made = Handmade().launched("k", 5, 60, 9)
    t4 = hardware.find("t4")
    assert analyze(made.trace("NVIDIA H100 80GB HBM3"), t4).source.gpu == hardware.find("h100-sxm")
    named = analyze(made.trace(""), t4)
    assert named.source.gpu == t4
    assert "gpu-as-named" in codes(named)
    unknown = analyze(made.trace("Some Accelerator"))
    assert unknown.source.gpu is None
    assert "unknown-gpu" in codes(unknown)
    assert np.isnan(unknown.work.roof_fraction).all()


def test_the_gpu_of_a_modelled_trace_is_the_one_modelled():
    info = CaptureInfo(version="0", source="modelled", device="model", gpu="t4", device_name="NVIDIA T4")
    source = analyze(Handmade().launched("k", 5, 60, 9).trace("", info)).source
    assert (source.kind, source.gpu.id, source.device_name) == ("modelled", "t4", "NVIDIA T4")


def test_lists_of_tensors_have_the_type_of_the_products_around():
    cat = {"shapes": "[[[8,1024],[8,1024]],[]]", "dtypes": '["TensorList","Scalar"]', "values": '["","0"]'}
    made = Handmade().host("op", "aten::addmm", 0, 50, **addmm(64, 256, 512, "c10::BFloat16"))
    work = analyze(made.host("op", "aten::cat", 60, 50, **cat).launched("cat", 65, 90, 5).trace()).work
    assert work.bytes.tolist() == [2 * (2 * 8 * 1024) * 2]


def test_flops_of_a_product_go_to_the_kernels_that_can_do_them():
    made = Handmade().host("op", "aten::addmm", 0, 10, **addmm(64, 64, 64))
    made.launched("batched_transpose_32x32_half", 1, 5, 30).launched("Cijk_Ailk_Bljk_MT64", 2, 40, 10)
    work = analyze(made.trace()).work
    assert work["flops"].tolist() == [0, 2 * 64**3]
    assert (work["bytes"] > 0).all()
    assert work["bytes"].iloc[0] == pytest.approx(3 * work["bytes"].iloc[1])


def test_flops_of_a_product_that_only_helpers_ran_are_not_lost():
    made = Handmade().host("op", "aten::addmm", 0, 10, **addmm(64, 64, 64)).launched("elementwise_kernel", 1, 5, 30)
    assert analyze(made.trace()).work["flops"].tolist() == [2 * 64**3]
