"""Data-parallel scaling, predicted from a training step of one GPU."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import CAP_BYTES
from tracekit.analyzers.predict.data_parallel import Assumed
from tracekit.analyzers.predict.stream_layout import Gradient, all_reduce_ns, buckets
from tracekit.answer import scaling
from tracekit.cli import main

TRACE = Path("benchmarks/data/h200_runs/gpt2-train-fp32-sdpa-b1.json.gz")
MIB = 1 << 20


def test_first_bucket_is_small_and_types_do_not_mix() -> None:
    made = [Gradient(1, MIB, "float32"), Gradient(2, 20 * MIB, "float32"), Gradient(3, 3 * MIB, "bfloat16")]
    made += [Gradient(4, 20 * MIB, "float32"), Gradient(5, MIB, "float32")]
    assert [(each.after, each.bytes // MIB, each.gradients) for each in buckets(made)] == [
        (1, 1, 1),
        (3, 3, 1),
        (4, 40, 2),
        (5, 1, 1),
    ]
    assert max(each.bytes for each in buckets([Gradient(at, MIB, "float32") for at in range(60)])) == CAP_BYTES


def test_scaling_of_a_recorded_step() -> None:
    two, eight = (scaling(TRACE, ranks) for ranks in (2, 8))
    assert two.gradient_bytes == 4 * 124_439_808, "the parameters of GPT-2"
    assert two.latency_us.low > two.one_us
    assert two.latency_us.low <= two.latency_us.expected <= two.latency_us.high
    assert eight.transfer_us > 1.5 * two.transfer_us
    assert 0.8 < eight.efficiency.expected < two.efficiency.expected < 1


def test_the_slowest_host_of_many_ranks_is_slower() -> None:
    expected, none = Assumed(1, 1, 1, hosts=1), Assumed(1, 1, 1, hosts=0)
    paces = [expected.pace(ranks) for ranks in (1, 2, 4, 8, 64)]
    assert paces[0] == 1 and paces == sorted(set(paces)) and paces[-1] < 1.5
    assert none.pace(64) == 1


def test_command_says_it_and_refuses_what_does_not_train() -> None:
    run = CliRunner()
    said = json.loads(run.invoke(main, ["predict", str(TRACE), "--data-parallel", "4", "--format", "json"]).stdout)
    assert said["ranks"] == 4 and said["efficiency"]["low"] <= said["efficiency"]["expected"]
    assert "times the throughput of one GPU" in run.invoke(main, ["predict", str(TRACE), "--data-parallel", "4"]).stdout
    assert run.invoke(main, ["predict", str(TRACE), "--data-parallel", "4", "--apply", "tf32"]).exit_code == 2
    with pytest.raises(InputError, match="Data-parallel scaling cannot be predicted"):
        scaling(TRACE.with_name("gpt2-prefill-fp32-sdpa-b1.json.gz"), 4)
    with pytest.raises(InputError, match="not those of one host"):
        scaling(TRACE, 9)


def test_hosts_are_linked_by_a_slower_network() -> None:
    gpu = hardware.find("h200")
    one, eight, hundreds = (all_reduce_ns(25 * MIB, 8 * hosts, gpu, "ib") for hosts in (1, 8, 64))
    assert one == all_reduce_ns(25 * MIB, 8, gpu, "nvlink") < eight < hundreds < 3 * one
    assert all_reduce_ns(1000 * MIB, 512, gpu, "ib") == pytest.approx(2 * 1000 * MIB / 340, rel=0.05), "8 × 42.5 GB/s"
