"""Kernels that torch.compile generated: what they fuse, their family, their layers."""

from pathlib import Path

import pandas as pd
import pytest
from handmade import Handmade

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute.kernel_names import is_helper
from tracekit.analyzers.cost import generated
from tracekit.analyzers.trace import load

SAMPLE = Path(__file__).parents[2] / "examples/traces/h200_compile-and-graph.json.gz"


@pytest.mark.parametrize(
    ("name", "ops", "family"),
    [
        ("triton_poi_fused_add_gelu_0", "add, gelu", "pointwise"),
        ("triton_poi_fused_add_cos_sin_0", "add, cos, sin", "pointwise"),
        ("triton_poi_fused__unsafe_view_mul_silu_2", "_unsafe_view, mul, silu", "pointwise"),
        ("triton_per_fused_gelu_native_layer_norm_0", "gelu, native_layer_norm", "norm"),
        ("triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1", "_unsafe_view, add, mean, mul, pow, rsqrt", "norm"),
        ("triton_red_fused__fused_rms_norm__to_copy_3", "_fused_rms_norm, _to_copy", "norm"),
        ("triton_per_fused_native_layer_norm_backward_12", "native_layer_norm_backward", "norm"),
        ("triton_per_fused__softmax_masked_fill_7", "_softmax, masked_fill", "softmax"),
        ("triton_red_fused__log_softmax_nll_loss_forward_4", "_log_softmax, nll_loss_forward", "softmax"),
        ("triton_red_fused_sum_1", "sum", "reduction"),
        ("triton_poi_fused_hardshrink_backward_mul_1", "hardshrink_backward, mul", "pointwise"),
        ("triton_tem_fused_addmm_relu_3", "addmm, relu", "gemm"),
        ("triton_tem_fused_convolution_3", "convolution", "convolution"),
        ("triton_tem_fused_flex_attention_0", "flex_attention", "attention"),
        ("triton_poi_fused_embedding_0", "embedding", "embedding"),
        ("triton_poi_fused_gelu_0d1d2de", "gelu", "pointwise"),
        ("cpp_fused_add_mul_0", "add, mul", "pointwise"),
    ],
)
def test_a_name_lists_the_ops_that_are_fused(name, ops, family):
    said = generated(name)
    assert said.label == f"fused: {ops}"
    assert said.family == family


def test_a_kernel_may_name_no_op():
    assert generated("triton_poi_fused_0").label == "fused"


@pytest.mark.parametrize(
    "name", ["triton_kernel", "my_triton_poi_fused_add_0", "_fused_moe_kernel", "triton_poi_add", ""]
)
def test_other_names_are_not_read(name):
    assert generated(name) is None


def test_a_generated_kernel_without_an_op_has_a_family():
    made = Handmade().host("runtime", "cudaGraphLaunch", 0, 1, correlation=1)
    made.device("triton_per_fused__softmax_0", 10, 5, correlation=1).device("other", 20, 4, correlation=1)
    analysis = analyze(made.trace())
    assert analysis.work["family"].tolist() == ["softmax", ""]
    assert analysis.kernels["op"].tolist() == ["fused: _softmax", "(CUDA graph)"]
    assert analysis.ops["name"].tolist() == ["(CUDA graph)"]


def test_regions_are_layers_where_nothing_else_is():
    made = Handmade().host("op", "Torch-Compiled Region: 0/0", 0, 50)
    made.host("op", "triton_poi_fused_add_0", 10, 5).launched("triton_poi_fused_add_0", 12, 100, 5)
    analysis = analyze(made.trace())
    assert analysis.source.layers_from == "compiled regions"
    assert analysis.layers["path"].tolist() == ["compiled region 0/0"]


def test_the_compiler_s_own_ranges_are_no_layers():
    made = Handmade().host("range", "entire_frame_compile_data: fn_name=_compile.compile_inner, compile_id=0/0", 0, 40)
    made.host("range", "## Call CompiledFxGraph fe6dkyiyjbf6pswwo672iobcm25cqbdxv2q7r7 ##", 50, 40)
    made.launched("compiling", 10, 100, 5).launched("triton_poi_fused_add_0", 60, 200, 5)
    layers = analyze(made.trace()).layers
    assert layers["path"].tolist() == ["compiled graph fe6dkyiy", "(no layer)"]
    assert layers["busy_ns"].tolist() == [5000, 5000]


def test_a_compiled_net_of_torch_2_11_on_an_h200():
    """One generated kernel, for GELU and LayerNorm, over a 64 x 1024 fp32 tensor, an output, and two vectors."""
    analysis = analyze(load(SAMPLE))
    kernel = analysis.kernels.set_index("name").loc["triton_per_fused_gelu_native_layer_norm_0"]
    assert kernel["op"] == "fused: gelu, native_layer_norm"
    work = analysis.work[analysis.work["name"] == "triton_per_fused_gelu_native_layer_norm_0"].iloc[0]
    assert work["family"] == "norm"
    assert analysis.layers["path"][work["layer"]] == "OptimizedModule"


@pytest.mark.parametrize("name", ["mi300_torch-compile", "a100_triton"])
def test_shared_traces_of_compiled_code(shared, name):
    kernels = analyze(load(shared / f"traces/{name}.json.gz")).kernels
    triton = kernels[kernels["name"].str.startswith("triton_")]
    assert len(triton) and triton["op"].str.startswith("fused: ").all()


@pytest.mark.parametrize(("tokens", "rows"), [(1, 1), (512, 512), (64_000, 32_000)])
def test_a_generated_lookup_reads_the_rows_that_are_looked_up(tokens, rows):
    shapes, dtypes = f"[[1,{tokens}],[32000,64],[1,{tokens},64]]", '["long int","c10::Half","c10::Half"]'
    made = Handmade().host("op", "triton_poi_fused_embedding_0", 0, 9, shapes=shapes, dtypes=dtypes)
    work = analyze(made.launched("triton_poi_fused_embedding_0", 1, 5, 3).trace()).work
    assert work.bytes.tolist() == [8 * tokens + 128 * rows + 128 * tokens]


@pytest.mark.parametrize(
    ("helper", "main"),
    [
        ("init_device_workspace_kernel<xmma__5x::implicit_gemm>", "sm90_xmma_fprop"),
        ("sm80_xmma_gemm_f32_execute_split_k_kernel__5x_cublas", "sm80_xmma_gemm_f32_execute_kernel__5x_cublas"),
        ("cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<>>", "cutlass::Kernel2<cutlass_80_tensorop>"),
        ("Cijk_SB_Bias_SHB_PostGSU8_VW4", "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64"),
        ("cudnn::cnn::reduce_wgrad_nchw_helper<float, float>", "cutlass_tensorop_s1688wgrad_optimized"),
        ("void flash::FlashAttnBwdPreprocess<>", "void flash::FlashAttnBwdSm90<>"),
        ("void at::cuda::detail::prepare_grouped_gemm_data<>", "nvjet_sm90_grouped"),
    ],
)
def test_helpers_compute_nothing(helper, main):
    assert is_helper(pd.Series([helper, main], dtype="category")).tolist() == [True, False]


def test_flops_of_a_split_product_belong_to_the_kernel_that_multiplies():
    made = Handmade().host("op", "aten::mm", 0, 9, shapes="[[8,16],[16,4]]", dtypes='["float","float"]')
    made.launched("sm80_xmma_gemm_execute_kernel", 1, 5, 3).launched("sm80_xmma_gemm_execute_split_k_kernel", 2, 9, 6)
    work = analyze(made.trace()).work
    assert work.flops.tolist() == [2 * 8 * 16 * 4, 0]
    assert (work.bytes > 0).all()
