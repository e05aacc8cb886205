"""What a trace says of a collective: read from its op's arguments, matched to its kernel, and moved to another GPU."""

from pathlib import Path

import pytest
from kineto_files import kernel, load_events, op, shared_trace

import tracekit
from tracekit.analyzers import analyze
from tracekit.analyzers.attribute import messages
from tracekit.analyzers.cost import Kind, Message, collective_ns, hardware, message
from tracekit.analyzers.predict import baseline, moved, project
from tracekit.analyzers.trace import Trace, load

H200, L4 = hardware.find("h200"), hardware.find("l4")
SAID = {
    "Collective name": "allreduce",
    "In msg nelems": 1 << 24,
    "Out msg nelems": 1 << 24,
    "dtype": "BFloat16",
    "Group size": 4,
}
NAME = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MESSAGE = Message("all-reduce", 1 << 25, 4)


def all_reduce(folder: Path, took_us: float, **said: object) -> Trace:
    """A step of an addition and a collective on an H200."""
    call = {"cat": "cuda_runtime", "args": {"correlation": 2}}
    return load_events(
        folder,
        op("ProfilerStep#1", 0.0, took_us + 100, cat="user_annotation"),
        op("record_param_comms", 20.0, 30.0, args={"External id": 7, **said}),
        op("cudaLaunchKernelExC", 30.0, 10.0, **call),
        kernel(NAME, 50.0, took_us, correlation=2, **{"External id": 7}),
        deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
    )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ('["allreduce","1000","1000","Float","2"]', Message("all-reduce", 4000, 2)),
        ('["_allgather_base","10","80","BFloat16","8"]', Message("all-gather", 160, 8)),
        ('["reduce_scatter_tensor_coalesced","80","10","Half","8"]', Message("reduce-scatter", 160, 8)),
        ('["all_to_allv","5","7","Long","4"]', Message("all-to-all", 56, 4)),
        ('["broadcast","3","3","Float8_e4m3fn","2"]', Message("broadcast", 3, 2)),
        ('["wait","0","0","","4"]', Message("", 0, 4)),
        ('["allreduce","1","1","Quaternion","2"]', Message("all-reduce", 0, 2)),
        ('["","True"]', Message()),
        ("", Message()),
        ("[1, 2, 3, 4, 5]", Message()),
    ],
)
def test_a_message_by_its_values(values: str, expected: Message) -> None:
    assert message(values) == expected


def test_bytes_over_a_link_are_those_of_bus_bandwidth() -> None:
    """As nccl-tests defines it: 2 (n - 1) / n of an all-reduce, (n - 1) / n of the others, all of a broadcast."""
    kinds: tuple[Kind, ...] = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast")
    assert [Message(kind, 800, 8).carried for kind in kinds] == [1400, 700, 700, 700, 800]


@pytest.mark.parametrize("ranks", [0, 1, 9, 128])
def test_a_group_of_one_or_of_several_hosts_is_not_modelled(ranks: int) -> None:
    assert not Message("all-reduce", 1000, ranks).known
    assert Message("all-reduce", 1000, 8).known


def test_arguments_of_the_op_say_what_its_kernel_moves(tmp_path: Path) -> None:
    trace = all_reduce(tmp_path, 500.0, **SAID)
    analysis = analyze(trace)
    assert list(messages(trace.host, analysis.work["name"], analysis.work["op"].to_numpy())) == [MESSAGE]
    assert "collective-not-modelled" not in set(analysis.problems["code"])
    over_the_link = 2 * 3 / 4 * (1 << 25)
    assert analysis.work["bytes"][0] == over_the_link
    assert analysis.work["roof_fraction"][0] == pytest.approx(over_the_link / 450e9 / 500e-6)


@pytest.mark.parametrize("took_us", [100.0, 5_000.0])
def test_waiting_for_other_ranks_stays_on_another_gpu(tmp_path: Path, took_us: float) -> None:
    trace = all_reduce(tmp_path, took_us, **SAID)
    base = baseline(trace, analyze(trace))
    assert base is not None and len(base.ops) == 1
    here, there = (collective_ns(MESSAGE, gpu) for gpu in (H200, L4))
    assert 100_000 < here < 5_000_000
    expected = took_us * 1e3 * there / here if took_us * 1e3 < here else took_us * 1e3 - here + there
    assert moved(base, L4).ops.kernel_ns[0] == pytest.approx(expected)
    assert "waited for other ranks" in project(base, L4).reason


def test_a_collective_of_unknown_size_keeps_its_time_and_says_so(tmp_path: Path) -> None:
    trace = all_reduce(tmp_path, 5_000.0)
    analysis = analyze(trace)
    base = baseline(trace, analysis)
    assert base is not None and base.ops.message[0] == Message()
    assert moved(base, L4).ops.kernel_ns[0] == base.ops.kernel_ns[0]
    assert "unknown size or group (1)" in project(base, L4).reason
    problem = analysis.problems.set_index("code").loc["collective-not-modelled"]
    assert problem["count"] == 1


def test_a_real_trace_of_two_ranks(shared: Path) -> None:
    """21 kernels: the buckets of a ResNet's gradients, 3 steps, and its buffers."""
    trace = load(shared_trace(shared, "a100_resnet-ddp_nccl"))
    work = analyze(trace).work
    collectives = [each for each in messages(trace.host, work["name"], work["op"].to_numpy()) if each]
    assert len(collectives) == 21
    assert {each.ranks for each in collectives} == {2}
    gradients = {each.bytes for each in collectives if each.kind == "all-reduce"}
    assert sum(gradients) == 4 * 25_557_032
    assert {each.bytes for each in collectives if each.kind == "broadcast"} == {53_120 * 4, 53 * 8}


@pytest.mark.parametrize(
    ("outer", "inner", "expected"),
    [
        (
            ("c10d::_allgather_base_", [[640], [10]], ["signed char", "signed char"]),
            ("nccl:_all_gather_base", [[10]], ["signed char"]),
            Message("all-gather", 640),
        ),
        (
            ("c10d::allreduce_", [[], []], ["TensorList", ""]),
            ("nccl:all_reduce", [[4096]], ["float"]),
            Message("all-reduce", 16384),
        ),
        (
            ("c10d::alltoall_base_", [[300], [256]], ["long", "long"]),
            ("nccl:all_to_all", [[256]], ["long"]),
            Message("all-to-all", 2400),
        ),
    ],
)
def test_before_torch_2_3_the_inputs_around_a_call_tell_its_size(tmp_path: Path, outer, inner, expected) -> None:
    def recorded(shapes: list, types: list) -> dict:
        return {"Input Dims": shapes, "Input type": types}

    call = {"cat": "cuda_runtime", "args": {"correlation": 2}}
    trace = load_events(
        tmp_path,
        op(outer[0], 10.0, 50.0, args={"External id": 6, **recorded(*outer[1:])}),
        op("record_param_comms", 20.0, 30.0, args={"External id": 7, **recorded([[]], [""])}),
        op(inner[0], 25.0, 20.0, cat="user_annotation", args=recorded(*inner[1:])),
        op("cudaLaunchKernelExC", 30.0, 10.0, **call),
        kernel(NAME, 50.0, 1000, correlation=2, **{"External id": 7}),
        deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
    )
    analysis = analyze(trace)
    assert messages(trace.host, analysis.work.name, analysis.work.op.to_numpy()).tolist() == [expected]
    assert (expected.carried, expected.known) == (expected.bytes, False)
    assert analysis.coverage.cost == 1
    assert analysis.work.roof_fraction.isna().all()
    assert "collective-not-modelled" in set(analysis.problems["code"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [("vllm::all_reduce", "all-reduce"), ("_C_custom_ar::all_reduce", "all-reduce"), ("vllm::moe_forward", "")],
)
def test_the_inputs_of_an_engines_op_tell_the_size_of_its_collective(tmp_path: Path, name: str, kind: Kind) -> None:
    inputs = {"Input Dims": [[64, 4096], []], "Input type": ["c10::BFloat16", ""]}
    trace = load_events(
        tmp_path,
        op("aten::mm", 0.0, 5.0),
        op(name, 10.0, 50.0, args={"External id": 6, **inputs}),
        op("cudaLaunchKernel", 30.0, 10.0, cat="cuda_runtime", args={"correlation": 2}),
        kernel("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", 50.0, 9, correlation=2, **{"External id": 6}),
        deviceProperties=[{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
    )
    work = analyze(trace).work
    assert messages(trace.host, work.name, work.op.to_numpy())[0] == Message(kind, 2 * 64 * 4096)


def test_a_recommendation_model_of_128_ranks_has_costs(shared: Path) -> None:
    analysis = tracekit.analyze(shared / "traces" / "ranks" / "rank-0.json.gz")
    assert analysis.coverage.cost > 0.9
