"""What bounds items, groups and the run."""

import msgspec
import pandas as pd
import pytest
from handmade import Handmade, addmm

from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import is_communication
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import BOUNDS
from tracekit.analyzers.trace import CaptureInfo, Latency
from tracekit.analyzers.trace.ranges import module, step

H200 = hardware.find("h200")
NEG_100_MB = {"shapes": "[[25000000]]", "dtypes": '["float"]', "values": '[""]'}
NEG_1_MB = {"shapes": "[[250000]]", "dtypes": '["float"]', "values": '[""]'}


def bound_of(name="k", op="aten::neg", signature=NEG_100_MB, duration=50, **values):
    made = Handmade().host("op", op, 0, 50, **signature).launched(name, 5, 60, duration, **values)
    return analyze(made.trace()).work.bound[0]


def shares(analysis):
    return {name: getattr(analysis.bound, name) for name in BOUNDS}


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "nvshmemi_transfer_rma_nbi",
        "void deep_ep::intranode::dispatch<8, 768>(int4*)",
        "rcclGenericKernel",
        "void two_shot_all_reduce_kernel<float>",
        "multimem_all_gather_kernel",
    ],
)
def test_communication_kernels_are_transfers(name):
    assert is_communication(pd.Series([name, "gemm_kernel"])).tolist() == [True, False]
    assert bound_of(name, blocks=1000) == "transfer"


def test_reductions_on_one_device_are_no_communication():
    names = [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>",
        "void cub::DeviceReduceKernel",
        "triton_red_fused_all_mean_0",
        "gather_kernel",
    ]
    assert not is_communication(pd.Series(names)).any()


def test_memory_bound_work_has_more_bytes_than_flops_to_wait_for():
    assert bound_of(blocks=5000) == "memory"


def test_latency_is_short_or_too_small_to_fill_the_gpu():
    slow = {"duration": 1000}
    assert bound_of(**slow, blocks=5000) == "memory"
    assert bound_of(**slow, blocks=H200.sms // 2 - 1) == "latency"
    assert bound_of(**slow, blocks=H200.sms // 2 + 1) == "memory"
    assert bound_of(signature=NEG_1_MB, **slow, blocks=5000) == "latency"
    assert bound_of(signature=NEG_1_MB, duration=4, blocks=5000) == "latency"
    assert bound_of(signature=NEG_1_MB, duration=0.5, blocks=5000) == "memory"


def test_fewer_warps_than_schedulers_are_latency_whatever_the_cost():
    unknown = {"op": "unknown::x", "duration": 50}
    assert bound_of(**unknown, blocks=4 * H200.sms - 1, threads_per_block=32) == "latency"
    assert bound_of(**unknown, blocks=4 * H200.sms, threads_per_block=32) == ""
    assert bound_of(**unknown, blocks=2 * H200.sms - 1, threads_per_block=33) == "latency"  # two warps
    assert bound_of(**unknown, blocks=H200.sms, threads_per_block=128) == ""  # persistent
    assert bound_of(**unknown, blocks=4 * H200.sms - 1) == ""  # threads are not recorded
    assert bound_of(duration=50, blocks=4 * H200.sms - 1, threads_per_block=32) == "memory"  # near its roof


def test_a_product_far_below_the_compute_roof_is_compute_bound_though_its_data_fit_the_l2():
    product = {"op": "aten::addmm", "signature": addmm(512, 512, 512), "duration": 100}
    assert bound_of(**product, blocks=500) == "compute"
    assert bound_of(**product, blocks=64) == "latency"


def test_unknown_cost_is_latency_when_short_and_unknown_when_long():
    assert bound_of(op="unknown::x", duration=4) == "latency"
    assert bound_of(op="unknown::x", duration=50) == ""


def test_a_kernel_that_the_device_waited_for_is_launch_bound():
    made = Handmade().host("range", step(0), 0, 500)
    made.launched("first", 5, 10, 20).launched("late", 95, 100, 20).launched("long", 215, 220, 300)
    assert analyze(made.trace()).work.bound.tolist() == ["", "launch", ""]


def test_a_kernel_that_was_queued_long_before_is_not_launch_bound():
    made = Handmade().host("range", step(0), 0, 500).launched("first", 5, 50, 20).launched("queued", 6, 200, 20)
    assert analyze(made.trace()).work.bound.tolist() == ["", ""]


def test_groups_count_the_gaps_before_their_items_as_launch_time():
    made = Handmade().host("range", step(0), 0, 900)
    for i in range(3):
        made.host("range", module("h", "Block"), 100 * i, 90).host("op", "aten::neg", 100 * i + 1, 50, **NEG_100_MB)
        made.launched("neg", 100 * i + 2, 100 * i + 10, 45, blocks=5000)
    analysis = analyze(made.trace())
    assert analysis.work.bound.tolist() == ["memory", "launch", "launch"]
    assert analysis.layers.bound.tolist() == ["memory"]
    assert analysis.kernels.bound.tolist() == ["memory"]


def test_own_bounds_are_those_of_the_work_in_a_step_that_waits_for_the_host():
    made = Handmade().host("range", step(0), 0, 900)
    for i, (duration, blocks) in enumerate([(45, 5000), (4, 5000), (45, 5000)]):
        made.host("range", module(f"h.{i}", "Block"), 300 * i, 290)
        made.host("op", "aten::neg", 300 * i + 1, 50, **NEG_100_MB)
        made.launched("neg", 300 * i + 2, 300 * i + 10, duration, blocks=blocks)
    analysis = analyze(made.trace())
    assert analysis.work.bound.tolist() == ["memory", "launch", "launch"]
    assert analysis.work.own_bound.tolist() == ["memory", "memory", "memory"]
    for table in ("kernels", "ops", "layer_types", "layer_ops"):
        assert "launch" in set(getattr(analysis, table).bound)
        assert set(getattr(analysis, table).own_bound) == {"memory"}


def test_own_bounds_of_groups_are_those_of_most_of_their_time():
    made = Handmade().host("range", step(0), 0, 900)
    for i, duration in enumerate([4, 4, 50]):
        made.host("range", module("h", "Block"), 300 * i, 290).host("op", "unknown::x", 300 * i + 1, 50)
        made.launched("x", 300 * i + 2, 300 * i + 10, duration)
    analysis = analyze(made.trace())
    assert analysis.work.own_bound.tolist() == ["latency", "latency", ""]
    assert analysis.kernels.bound.tolist() == analysis.layers.bound.tolist() == ["launch"]
    assert analysis.kernels.own_bound.tolist() == analysis.layers.own_bound.tolist() == [""]


def test_shares_of_the_run_sum_to_1_and_idle_is_launch():
    made = Handmade().host("range", step(0), 0, 200).host("op", "aten::neg", 1, 50, **NEG_100_MB)
    made.launched("neg", 2, 10, 60, blocks=5000)
    made.launched("Memcpy HtoD", 80, 90, 20, call="cudaMemcpyAsync", category="memcpy", bytes=100)
    bound_shares = shares(analyze(made.trace()))
    assert bound_shares == pytest.approx({"compute": 0, "memory": 0.3, "launch": 0.6, "latency": 0, "transfer": 0.1})


def test_a_run_of_nothing_but_copies_is_idle_between_them():
    made = Handmade().host("range", step(0), 0, 200)
    made.launched("Memcpy HtoD", 80, 90, 20, call="cudaMemcpyAsync", category="memcpy", bytes=100)
    found = shares(analyze(made.trace()))
    assert (found["transfer"], found["launch"]) == (pytest.approx(0.1), pytest.approx(0.9))


def capture(latency_us):
    return CaptureInfo(
        version="0",
        source="measured",
        device="cuda",
        gpu="h200",
        device_name="NVIDIA H200",
        latency=Latency(latency_us, latency_us, latency_us, 10),
    )


def two_steps():
    made = Handmade()
    for i in range(2):
        made.host("range", step(i), 300 * i, 290).host("op", "aten::neg", 300 * i + 1, 50, **NEG_100_MB)
        made.launched("neg", 300 * i + 2, 300 * i + 10, 60, blocks=5000).launched("b", 300 * i + 200, 300 * i + 210, 2)
    return made


def test_shares_are_of_the_time_without_a_profiler_where_that_was_measured():
    profiled, unprofiled = analyze(two_steps().trace()), analyze(two_steps().trace(capture=capture(100)))
    assert profiled.bound.launch == pytest.approx(1 - 124 / 580)
    assert shares(unprofiled) == pytest.approx(
        {"compute": 0, "memory": 0.6, "launch": 0.38, "latency": 0.02, "transfer": 0}
    )
    assert unprofiled.latency.profiled_us == 290
    assert unprofiled.latency.unprofiled.median_us == 100


def test_gaps_are_scaled_to_the_time_without_a_profiler():
    """Without the profiler, 38 us of the 228 us of idle time in a step remain, and 23 us of the 140 us gap."""
    made = two_steps()
    assert analyze(made.trace()).layers.bound.tolist() == ["launch"]
    assert analyze(made.trace(capture=capture(100))).layers.bound.tolist() == ["memory"]


def test_work_that_exceeds_the_latency_is_scaled_down_and_said():
    analysis = analyze(two_steps().trace(capture=capture(50)))
    assert sum(shares(analysis).values()) == pytest.approx(1)
    assert analysis.bound.launch == 0
    assert analysis.bound.memory == pytest.approx(60 / 62)
    assert "busy-exceeds-latency" in set(analysis.problems["code"])


def test_work_within_the_spread_of_the_latency_is_no_problem():
    latency = Latency(60, 55, 65, 10)
    analysis = analyze(two_steps().trace(capture=msgspec.structs.replace(capture(60), latency=latency)))
    assert "busy-exceeds-latency" not in set(analysis.problems["code"])


def test_unknown_bounds_are_said():
    analysis = analyze(Handmade().launched("k", 2, 10, 60).trace())
    problem = analysis.problems[analysis.problems["code"] == "bound-unknown"].iloc[0]
    assert "100%" in problem.message
    assert analysis.bound.unknown == pytest.approx(60 / 68)


@pytest.mark.parametrize(("blocks", "bound"), [(128, "compute"), (40, "latency")])
def test_a_persistent_kernel_with_a_block_on_nearly_every_sm_fills_the_gpu(blocks, bound):
    """A GEMM at a quarter of its roof that uses all 132 SMs, with one block each."""
    made = Handmade().host("op", "aten::addmm", 0, 10, **addmm(4096, 4096, 4096, "c10::Half"))
    made.launched("nvjet_hsh_256x128_64x4_persistent", 1, 5, 560, blocks=blocks)
    assert analyze(made.trace()).work["bound"].tolist() == [bound]


def test_a_layer_whose_weights_are_not_among_its_inputs_has_no_known_bound():
    experts = {
        "shapes": "[[32,3072],[32,32],[]]",
        "dtypes": '["c10::BFloat16","c10::BFloat16",""]',
        "values": '["","",""]',
    }
    assert bound_of("_matmul_ogs", "vllm::moe_forward", experts, duration=150, blocks=2000) == ""
    assert bound_of("_matmul_ogs", "vllm::moe_forward", experts, duration=3, blocks=2000) == "latency"
