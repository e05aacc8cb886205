"""Work that was done before: passes that grow by one token, and the forward pass inside the backward pass."""

import numpy as np
import pytest
from handmade import Handmade, addmm

from tracekit.advise import find
from tracekit.analyzers.attribute import attends_in_32_bits, checkpointing, forward_again, growing_prefix, in_doubles
from tracekit.analyzers.predict import start

ENGINE = "autograd::engine::evaluate_function: "


def generated(lengths: list[int], *, shapes: bool = True, cached: bool = False) -> Handmade:
    """Three layers a pass: a GEMM, a norm, and a copy to a cache."""
    made, at = Handmade(), 0.0
    for length in lengths:
        rows = 1 if cached else length
        for _ in range(3):
            made.host("op", "aten::addmm", at, 5, **(addmm(4 * rows, 768, 768) if shapes else {}))
            made.launched("ampere_sgemm_128x64_tn", at + 1, at + 5, 3, blocks=12)
            made.launched("vectorized_layer_norm_kernel<float>", at + 2, at + 8, 2, blocks=4 * rows)
            made.launched("vectorized_elementwise_kernel<4, gelu>", at + 3, at + 9, 2, blocks=6 * rows)
            made.launched("CatArrayBatchedCopy<float>", at + 4, at + 10, 1, blocks=2 * length)
            at += 20
    return made


@pytest.mark.parametrize("shapes", [True, False])
def test_passes_that_are_one_token_longer_have_no_cache(shapes: bool) -> None:
    trace = generated([*range(100, 120)], shapes=shapes).trace()
    growth = growing_prefix(trace.host, trace.device)
    assert growth is not None
    assert (growth.passes, growth.tokens) == (20, pytest.approx(109.5))


def test_a_kernel_that_also_reads_the_last_token_alone_grows() -> None:
    made, at = generated([]), 0.0
    for length in range(100, 120):
        made.host("op", "aten::layer_norm", at, 5)
        for place in range(3):
            made.launched("vectorized_layer_norm_kernel<float>", at + place, at + 8 + 2 * place, 2, blocks=4 * length)
        made.launched("vectorized_layer_norm_kernel<float>", at + 4, at + 14, 2, blocks=4)
        at += 20
    growth = growing_prefix(made.trace().host, made.trace().device)
    assert growth is not None and growth.tokens == pytest.approx(109.5)


@pytest.mark.parametrize("shapes", [True, False])
def test_a_cache_grows_and_its_passes_do_not(shapes: bool) -> None:
    trace = generated([*range(100, 120)], shapes=shapes, cached=True).trace()
    assert growing_prefix(trace.host, trace.device) is None


def test_an_encoder_that_runs_again_for_each_token_hides_no_growth() -> None:
    made, at = Handmade(), 0.0
    for tokens in [*range(1, 11)] * 3:
        for rows in (144, 144, 144, 144, tokens, tokens):
            made.host("op", "aten::addmm", at, 5, **addmm(rows, 384, 384)).launched("sgemm", at + 1, at + 5, 3)
            at += 20
    growth = growing_prefix(made.trace().host, made.trace().device)
    assert growth is not None and growth.tokens == pytest.approx(5.5)


@pytest.mark.parametrize("lengths", [[128] * 12, [100, 164, 90, 300, 77, 140, 260, 31], [100, 101, 102]])
def test_batches_of_other_lengths_are_no_growth(lengths: list[int]) -> None:
    trace = generated(lengths).trace()
    assert growing_prefix(trace.host, trace.device) is None


def trained(again: tuple[str, ...], node: str = "GeluBackward0") -> Handmade:
    made = Handmade()
    for at, name in enumerate(("aten::layer_norm", "aten::linear", "aten::gelu")):
        made.host("op", name, 10 * at, 8)
    made.host("op", ENGINE + node, 100, 90)
    for at, name in enumerate(again):
        made.host("op", name, 102 + 10 * at, 8)
    return made.host("op", "aten::gelu_backward", 180, 8)


def test_forward_ops_of_two_kinds_inside_a_node_are_the_forward_pass_again() -> None:
    covered = forward_again(trained(("aten::layer_norm", "aten::linear")).trace().host)
    assert covered.at(np.array([5, 103, 115, 181]) * 1000).tolist() == [False, True, True, False]


@pytest.mark.parametrize("again", [("aten::mm", "aten::sum"), ("aten::linear", "aten::addmm")])
def test_backward_formulas_and_custom_functions_are_not(again: tuple[str, ...]) -> None:
    assert not forward_again(trained(again).trace().host).at(np.array([103_000, 115_000])).any()


HOOKS = "torch/utils/checkpoint.py(1154): unpack_hook"


@pytest.mark.parametrize(("frame", "taken"), [(HOOKS, 4), ("torch/autograd/graph.py(300): pack_to_cpu", 0)])
def test_checkpointing_takes_the_time_to_the_next_op_and_that_of_its_hooks(frame: str, taken: int) -> None:
    made = trained(("aten::layer_norm", "aten::linear")).host("python", frame, 11, 4)
    covered = checkpointing(made.trace().host, forward_again(made.trace().host))
    times = np.array([0, 90, 170, 185, 200]) * 1000
    assert np.diff(covered.before(times)).tolist() == [taken * 1000, 70_000, 10_000, 0]


def test_hooks_without_a_forward_pass_that_runs_again_are_no_checkpointing() -> None:
    made = trained(("aten::mm", "aten::sum")).host("python", HOOKS, 11, 4)
    covered = checkpointing(made.trace().host, forward_again(made.trace().host))
    assert covered.before(np.array([200_000])).tolist() == [0]


def test_doubles_are_known_by_the_kernels_and_not_by_their_arguments() -> None:
    trace = Handmade()
    for name in (
        "cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1",
        "void at::native::vectorized_elementwise_kernel<2, at::native::FillFunctor<double>, std::array<char*, 1ul>>",
        "void at::native::smooth_l1_kernel_cuda(at::TensorIteratorBase&, double)::{lambda(float, float)#1}",
        "FusedSgdMathFunctor<float, 3>, double, double, float*, double",
        "void cutlass::Kernel<GroupedGemm>",
    ):
        trace.device(name, 0, 1)
    assert in_doubles(trace.trace().device["name"]).tolist() == [True, True, False, False, False]


def test_attention_in_32_bits_is_known_by_its_kernels() -> None:
    trace = Handmade()
    for name in ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(...)", "fmha_cutlassB_bf16_aligned_64x64_k64_sm80(...)"):
        trace.device(name, 0, 1)
    assert attends_in_32_bits(trace.trace().device["name"]).tolist() == [True, False]


def stepped(call: str, often: int = 4) -> Handmade:
    made = Handmade()
    for step in range(4):
        at = 8_000 * step
        made.host("range", f"ProfilerStep#{step}", at, 7_990)
        made.host("op", "aten::mm", at + 100, 50)
        made.launched("sgemm", at + 110, at + 120, 2_000)
        if step < often:
            made.host("runtime", call, at + 2_200, 5_500)
        made.host("op", "aten::relu", at + 7_750, 50)
        made.launched("relu", at + 7_760, at + 7_770, 200)
    return made


@pytest.mark.parametrize(("call", "frees"), [("cudaFree", 1), ("hipFree", 1), ("cuMemUnmap", 1), ("cudaFreeAsync", 0)])
def test_frees_of_a_step_are_counted(call: str, frees: int) -> None:
    _, base = start(stepped(call).trace())
    assert base is not None
    assert base.frees == frees


def test_frees_of_the_first_step_alone_are_those_of_the_start() -> None:
    _, base = start(stepped("cudaFree", often=1).trace())
    assert base is not None
    assert base.frees == 0


def test_steps_that_free_memory_are_shorter_without_it() -> None:
    _, base = start(stepped("cudaFree").trace())
    assert base is not None
    waste = find("memory-management")
    assert waste.obstacle(base) is None
    assert waste.applied(base, "expected").latency_ns < base.latency_ns - 5e6
