"""Host and device timelines of a recorded step, computed by hand."""

from dataclasses import replace

import numpy as np
from msgspec import structs

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import CLASSES, HostCosts
from tracekit.capture.fake.recording import OpCall, RecordingBuilder
from tracekit.capture.fake.timeline import ModelledKernel, Timeline, kernel_of, lay_out

T4 = structs.replace(hardware.find("t4"), launch_us=6.0)
VIEW = OpCall(
    "aten::view",
    "[[8,8],[]]",
    '["float","ScalarList"]',
    "[[8,1],[]]",
    '["","[64]"]',
    False,
    "",
    "float",
    256,
    256,
    64,
)
MM = replace(
    VIEW, name="aten::mm", shapes="[[512,768],[768,2304]]", dtypes='["float","float"]', values='["",""]', launches=True
)
READ = replace(VIEW, name="aten::_local_scalar_dense", shapes="[[]]", dtypes='["bool"]', copies="to host")


OP_NS, VIEW_NS, MODULE_NS, MODEL_NS, READ_NS = 7_000, 600, 15_000, 100_000, 9_000
HOST = HostCosts(
    op_us=dict.fromkeys(CLASSES, 0.0)
    | {"gemm": 7.0, "view": 0.6, "module": 15.0, "model": 100.0, "sync": 9.0, "autograd": 4.0}
    | {"backward": 3.0, "backward_op": 5.0, "optimizer": 2.0},
    base_us=20.0,
    span=Interval(1.0, 1.0, 1.0),
    source="by hand",
)
ARRIVES_NS = OP_NS + 3_000  # launched 3 µs before the op's end, begun 6 µs later


def test_a_kernel_waits_for_its_launch_and_for_the_kernel_before() -> None:
    times = _lay_out([MM, MM], [50_000, 1_000])
    assert times.host_start.tolist() == [[0, OP_NS, 2 * OP_NS]]
    assert times.kernel_start.tolist() == [[ARRIVES_NS, ARRIVES_NS + 51_000, -1]]
    assert times.kernel_end.tolist() == [[ARRIVES_NS + 50_000, ARRIVES_NS + 52_000, -1]]
    assert times.step_ns == ARRIVES_NS + 52_000 + 5_000  # 5 µs to return from the synchronisation


def test_views_and_modules_take_host_time_of_their_own() -> None:
    times = _lay_out([VIEW, MM], [0, 1_000])
    assert np.diff(times.host_start[0]).tolist() == [VIEW_NS, OP_NS]
    builder = RecordingBuilder()
    builder.recording.calls.append(MM)
    builder.push("module: h (Block)")
    builder.append(0)
    builder.pop()
    inside = lay_out(builder.recording, [ModelledKernel("k", 1_000, "gemm")], T4, HOST, 1)
    assert np.diff(inside.host_start[0]).tolist() == [MODEL_NS + MODULE_NS, OP_NS, 1]


def test_only_the_outermost_module_is_the_model() -> None:
    builder = RecordingBuilder()
    builder.push("module: (model) (GPT)")
    builder.push("phase: inner")
    builder.push("module: h (Block)")
    for _ in range(3):
        builder.pop()
    builder.push("module: loss (Loss)")
    builder.pop()
    times = lay_out(builder.recording, [], T4, HOST, 1)
    expected = [MODEL_NS + MODULE_NS, 1, MODULE_NS, 1, 1, 1, MODEL_NS + MODULE_NS, 1]
    assert np.diff(times.host_start[0]).tolist() == expected


def test_training_takes_host_time_for_nodes_and_for_each_tensor_of_the_optimizer() -> None:
    lists = replace(MM, name="aten::_foreach_add_", shapes="[[[8,8],[8],[4]],[]]")
    builder = RecordingBuilder()
    builder.recording.calls.extend([MM, VIEW, lists])
    for call, sequence, node in ((0, 7, -1), (1, 8, -1), (0, -1, 0), (1, -1, 0), (0, -1, 1), (2, -1, -1)):
        builder.append(call, sequence, node)
    kernels = [ModelledKernel("k", 1_000, "gemm"), None, ModelledKernel("k", 1_000, "optimizer")]
    times = lay_out(builder.recording, kernels, T4, HOST, 1)
    recorded, node, launch = 4_000, 3_000, 5_000
    assert np.diff(times.host_start[0]).tolist() == [
        *(OP_NS + recorded, VIEW_NS + recorded),
        *(launch + node, VIEW_NS, launch + node),
        3 * 2_000,
    ]


def test_reading_back_makes_the_host_wait() -> None:
    times = _lay_out([MM, READ, MM], [100_000, 1_500, 1_000])
    copied = max(ARRIVES_NS + 100_000 + 1_000, OP_NS + READ_NS + 3_000) + 1_500
    assert times.kernel_end[0, 1] == copied
    assert times.issued[0, 1] == OP_NS + READ_NS
    assert times.host_end[0, 1] == times.host_start[0, 2] == copied + 5_000


def test_steps_are_alike() -> None:
    times = _lay_out([MM, VIEW, MM], [50_000, 0, 30_000], steps=3)
    since = (times.kernel_start - times.host_start[:, :1])[:, [0, 2]]
    assert (since == since[0]).all()
    assert (np.diff(times.host_start[:, 0]) == times.step_ns).all()


def test_kernels_are_named_as_modelled_and_timed_by_their_cost() -> None:
    kernel = kernel_of(MM, T4, tf32=False)
    assert kernel and kernel.name == "modelled::gemm aten::mm [512x2304x768] fp32"
    assert kernel.duration_ns > 2 * 512 * 768 * 2304 / 8.1e12 * 1e9
    assert kernel_of(VIEW, T4, tf32=False) is None


def test_tf32_is_of_matrix_products_alone() -> None:
    a100 = hardware.find("a100")
    add = replace(
        MM,
        name="aten::add",
        shapes="[[512,768],[512,768],[]]",
        dtypes='["float","float","Scalar"]',
        values='["","","1"]',
    )
    names = [kernel_of(call, a100, tf32=True) for call in (MM, add)]
    assert [kernel.name for kernel in names if kernel] == [
        "modelled::gemm aten::mm [512x2304x768] tf32",
        "modelled::pointwise aten::add [512x768] fp32",
    ]


def test_convolutions_use_tf32_where_the_gpu_has_it() -> None:
    convolution = replace(
        MM,
        name="aten::convolution",
        shapes="[[8,64,56,56],[64,64,3,3],[],[],[],[],[],[],[]]",
        dtypes='["float","float","","ScalarList","ScalarList","ScalarList","Scalar","ScalarList","Scalar"]',
        values='["","","","[1, 1]","[1, 1]","[1, 1]","False","[0, 0]","1"]',
    )
    kernels = [kernel_of(convolution, gpu, tf32=False) for gpu in (hardware.find("a100"), T4)]
    assert [kernel.name.split()[-1] for kernel in kernels if kernel] == ["tf32", "fp32"]


def test_an_op_without_a_formula_is_an_operation_an_element() -> None:
    unknown = replace(MM, name="aten::of_tomorrow", read_bytes=4_000_000, write_bytes=4_000_000, elements=1_000_000)
    kernel = kernel_of(unknown, T4, tf32=False)
    assert kernel and kernel.name == "modelled::pointwise aten::of_tomorrow [512x768] fp32"
    assert kernel.duration_ns > 8_000_000 / T4.bandwidth * 1e9


def _lay_out(ops: list[OpCall], kernel_ns: list[int], steps: int = 1) -> Timeline:
    builder = RecordingBuilder()
    builder.recording.calls.extend(ops)
    for number in range(len(ops)):
        builder.append(number)
    kernels = [ModelledKernel("k", duration, "gemm") if duration else None for duration in kernel_ns]
    return lay_out(builder.recording, kernels, T4, HOST, steps)
