"""Products whose precision only the names of their kernels tell."""

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from op_lists import base

from tracekit.advise.optimizations.half_precision import HalfPrecision
from tracekit.advise.optimizations.layouts import PadShapes
from tracekit.advise.optimizations.mixed_precision import TF32, MixedPrecision
from tracekit.analyzers.attribute import multiplies_in
from tracekit.analyzers.predict import halved_at_best, retimed_by_name, rows_in_precision


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("volta_sgemm_64x64_nt", "fp32"),
        ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "fp32"),
        ("void wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>", "fp32"),
        ("cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4", "tf32"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32", "tf32"),
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_64x64_nt_align1", ""),
        ("void precomputed_convolve_sgemm<__nv_bfloat16, 128, 6>", ""),
        ("volta_h884gemm_64x64_nt", ""),
        ("vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", ""),
    ],
)
def test_the_name_of_a_kernel_tells_in_what_it_multiplies(name: str, precision: str) -> None:
    assert multiplies_in(pd.Series([name], dtype="category")).tolist() == [precision]


def test_products_of_unknown_cost_shrink_by_their_names() -> None:
    known = base("v100", precision="fp32", workload="train")
    unknown = pd.Series([None] * len(known.ops), dtype=object)
    named = np.where(known.ops.name == "aten::addmm", "fp32", "").astype(object)
    run = replace(
        known,
        ops=known.ops.assign(cost=unknown, phase="forward"),
        recorded=replace(known.recorded, multiplies_in=named),
    )
    products = run.ops.name == "aten::addmm"
    assert rows_in_precision(run, "fp32").tolist() == products.tolist()
    assert MixedPrecision().obstacle(run) is None
    low, expected, high = (MixedPrecision().transform(run, end) for end in ("worst", "expected", "best"))
    before = run.ops.kernel_ns[products]
    assert (before > low.kernel_ns[products]).all()
    assert (low.kernel_ns[products] > expected.kernel_ns[products]).all()
    assert (expected.kernel_ns[products] > high.kernel_ns[products]).all()
    assert (expected.kernel_ns[~products] == run.ops.kernel_ns[~products]).all()


def test_other_kernels_of_unknown_cost_move_half_the_bytes_at_best() -> None:
    known = base("h100", precision="fp32")
    unknown = pd.Series([None] * len(known.ops), dtype=object)
    named = np.where(known.ops.name == "aten::addmm", "fp32", "").astype(object)
    run = replace(known, ops=known.ops.assign(cost=unknown), recorded=replace(known.recorded, multiplies_in=named))
    others = run.ops.name != "aten::addmm"
    low, high = (halved_at_best(run, run.ops, outcome).kernel_ns / run.ops.kernel_ns for outcome in ("worst", "best"))
    assert (low == 1).all()
    assert high.tolist() == np.where(others, 0.5, 1.0).tolist()
    nameless = replace(run, recorded=replace(run.recorded, multiplies_in=np.where(others, named, "").astype(object)))
    assert (halved_at_best(nameless, run.ops, "best").kernel_ns == run.ops.kernel_ns).all()


def test_unaligned_products_of_unknown_cost_are_told_by_their_names() -> None:
    known = base("h100")
    run = replace(
        known,
        ops=known.ops.assign(cost=pd.Series([None] * len(known.ops), dtype=object)),
        recorded=replace(known.recorded, unaligned=known.ops.name == "aten::addmm"),
    )
    assert PadShapes().obstacle(run) is None
    assert PadShapes().reason(run)[0].kind == "pad-shapes-by-name"
    after = PadShapes().applied(run, "expected")
    products = run.ops.name == "aten::addmm"
    assert (after.ops.kernel_ns[products] < 0.5 * run.ops.kernel_ns[products]).all()
    assert (after.ops.kernel_ns[~products] == run.ops.kernel_ns[~products]).all()
    assert PadShapes().obstacle(after)


def test_products_are_narrowed_once() -> None:
    run = base("a100", precision="fp32")
    named = replace(run.recorded, multiplies_in=np.full(len(run.ops), "fp32", dtype=object))
    run = replace(run, ops=run.ops.assign(cost=pd.Series([None] * len(run.ops), dtype=object)), recorded=named)
    assert TF32().obstacle(run) is None
    assert TF32().obstacle(HalfPrecision().applied(run, "expected"))


def test_a_known_cost_is_not_judged_by_the_name() -> None:
    run = base("a100", precision="fp32")
    run = replace(run, recorded=replace(run.recorded, multiplies_in=np.full(len(run.ops), "fp32", dtype=object)))
    assert not rows_in_precision(run, "fp32").any()
    assert (retimed_by_name(run, run.ops, "bf16", "expected").kernel_ns == run.ops.kernel_ns).all()
    assert TF32().objection(run) is None
