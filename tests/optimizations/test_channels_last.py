"""Convolutions whose kernels copy images from one layout to the other."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from op_lists import base
from started import started

from tracekit.advise import find
from tracekit.analyzers.attribute import changes_layout, normalizes_channels_first
from tracekit.analyzers.cost import Cost, Norm, Product
from tracekit.analyzers.predict import Baseline
from tracekit.analyzers.predict.recorded import Recorded

TRACES = Path(__file__).parents[2] / "benchmarks/slow_scripts/traces"
CHANNELS_LAST = find("channels-last")


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        ("void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true>", True),
        ("void nhwcToNchwKernel<float, float, float, true, false>", True),
        ("void cudnn::ops::nchwToFoldedNhwcKernel<__half>", True),
        ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128", False),
        ("conv2d_c1_k1_nchw_shmem_tiling", False),
    ],
)
def test_copies_between_layouts_are_known_by_their_names(name: str, copies: bool) -> None:
    assert changes_layout(pd.Series([name], dtype="category")).tolist() == [copies]


def _convolutions(call: str, **settings: str) -> Baseline:
    """Return a run whose products are convolutions with channels first."""
    run = base("h200", tokens=4096, **settings)
    ops = run.ops.assign(call=[call if name == "aten::addmm" else name for name in run.ops.name])
    costs = [
        _convolution(cost) if name == "aten::addmm" else cost for name, cost in zip(ops.name, ops.cost, strict=True)
    ]
    return replace(run, ops=ops.assign(cost=pd.Series(costs, dtype=object)))


def _convolution(cost: Cost) -> Cost:
    assert isinstance(cost.work, Product)
    return replace(cost, family="convolution", access="transposed", run=64)


def _with_copies(run: Baseline, share: float) -> Baseline:
    shares = np.where(run.ops.name == "aten::addmm", share, 0.0)
    return replace(run, recorded=Recorded(layout_share=shares))


def test_recorded_copies_go_and_the_rest_of_the_convolution_stays() -> None:
    run = _with_copies(_convolutions("aten::conv2d"), 0.4)
    rows = run.ops.call == "aten::conv2d"
    at_best = CHANNELS_LAST.transform(run, "best").kernel_ns
    assert at_best[rows].sum() == pytest.approx(0.6 * run.ops.kernel_ns[rows].sum())
    assert (at_best[~rows] == run.ops.kernel_ns[~rows]).all()
    expected, at_worst = (CHANNELS_LAST.transform(run, which).kernel_ns.sum() for which in ("expected", "worst"))
    assert at_best.sum() < expected < at_worst < run.ops.kernel_ns.sum()


def test_volumes_have_a_layout_of_their_own() -> None:
    volumes, images = (CHANNELS_LAST.how_to(_with_copies(_convolutions(f"aten::conv{n}d"), 0.4)) for n in (3, 2))
    assert volumes == images.replace("channels_last", "channels_last_3d") != images


def test_modelled_convolutions_lose_the_modelled_copies() -> None:
    run = _convolutions("aten::conv2d")
    run = replace(run, source=replace(run.source, kind="modelled"))
    after = CHANNELS_LAST.transform(run, "expected")
    rows = run.ops.call == "aten::conv2d"
    assert (after.kernel_ns[rows] < run.ops.kernel_ns[rows]).all()
    assert {cost.access for cost in after.cost[rows]} == {"linear"}


def test_norms_over_channels_in_bf16_use_the_faster_kernels_of_this_layout() -> None:
    run = _with_copies(_convolutions("aten::conv2d"), 0.4)
    size = 2 * 8 * 64 * 256 * 256
    norm = Cost(0, size, size, "norm", "bf16", work=Norm(channels=64, backward=True))
    costs, others = run.ops.cost.copy(), np.flatnonzero(run.ops.call != "aten::conv2d")[:2]
    costs[others] = norm, replace(norm, work=Norm(channels=64, grouped=True))
    ops = run.ops.assign(cost=costs)
    for kind in ("imported", "modelled"):
        one = replace(run, ops=ops, source=replace(run.source, kind=kind))
        after = (CHANNELS_LAST.transform(one, "expected").kernel_ns / ops.kernel_ns)[others]
        assert after[0] < 0.6 and after[1] == 1.0


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("void at::native::batch_norm_backward_kernel<c10::BFloat16, float, float, int>", True),
        ("void at::native::batch_norm_collect_statistics_kernel<at::native::Var, c10::BFloat16, float>", True),
        ("void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, c10::BFloat16>", False),
        ("void at::native::batch_norm_backward_reduce_channels_last_kernel<4, c10::BFloat16>", False),
        ("void at::native::batch_norm_transform_input_kernel<c10::BFloat16, float, float, false, int>", False),
    ],
)
def test_norms_with_channels_first_that_train_are_known_by_their_names(name: str, first: bool) -> None:
    assert normalizes_channels_first(pd.Series([name], dtype="category")).tolist() == [first]


def test_norms_of_unknown_size_are_faster_in_this_layout_if_their_names_show_the_other() -> None:
    run = _with_copies(_convolutions("aten::conv2d"), 0.4)
    others = np.flatnonzero(run.ops.call != "aten::conv2d")[:3]
    costs, phases, shares = run.ops.cost.copy(), run.ops.phase.astype(object), np.zeros(len(run.ops))
    costs[others[:2]], phases[others[1]], shares[others] = None, "backward", 1.0
    ops = run.ops.assign(cost=costs, phase=phases)
    run = replace(run, ops=ops, recorded=replace(run.recorded, norm_share=shares))
    after = {
        outcome: (CHANNELS_LAST.transform(run, outcome).kernel_ns / ops.kernel_ns)[others]
        for outcome in ("worst", "expected", "best")
    }
    assert after["expected"].tolist() == pytest.approx([0.6, 0.32, 1.0])
    assert (after["best"][:2] < after["expected"][:2]).all() and (after["expected"][:2] < after["worst"][:2]).all()


def test_what_copies_nothing_and_what_has_no_such_layout_is_refused() -> None:
    assert "no convolution" in str(CHANNELS_LAST.objection(base("h200")))
    assert "No convolution copies" in str(CHANNELS_LAST.objection(_with_copies(_convolutions("aten::conv2d"), 0.0)))
    assert CHANNELS_LAST.objection(_with_copies(_convolutions("aten::conv1d"), 0.4))
    assert CHANNELS_LAST.objection(_with_copies(_convolutions("aten::conv2d"), 0.4)) is None


def test_a_recorded_training_run_of_images_is_told_of_its_copies() -> None:
    run = started(TRACES / "data-loading.json.gz")
    assert run is not None
    assert CHANNELS_LAST.objection(run) is None
    statement, norms = CHANNELS_LAST.reason(run)
    assert norms.kind == "channels-last-norms"
    copies = next(each.value for each in statement.evidence if each.role == "copies")
    assert 0.1 < copies < 0.2
    sequences = started(TRACES / "scales-on-streams.json.gz")
    assert sequences is not None
    assert CHANNELS_LAST.objection(sequences)
