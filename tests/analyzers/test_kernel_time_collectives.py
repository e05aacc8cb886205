"""Collectives between GPUs of one host: rings over their links, or through the host's memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fitting.collectives import ratios
from benchmarks.measurements.own import TOLD_FROM, collectives
from tracekit.analyzers.cost import GPU, Kind, Message, all_gpus, collective_ns
from tracekit.analyzers.cost.hardware import find

gpus = st.sampled_from(all_gpus())
KINDS: list[Kind] = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"]
H200 = find("h200")


@pytest.mark.parametrize(
    ("kind", "ranks", "between", "measured_us"),
    [
        ("all-reduce", 2, "nvlink", 888),
        ("all-reduce", 4, "nvlink", 1182),
        ("all-gather", 4, "nvlink", 662),
        ("reduce-scatter", 2, "nvlink", 582),
        ("all-to-all", 4, "nvlink", 654),
        ("broadcast", 4, "nvlink", 743),
        ("all-reduce", 2, "host", 9159),
        ("all-gather", 4, "host", 7293),
        ("broadcast", 2, "host", 5338),
    ],
)
def test_268_mb_between_h200s(kind: Kind, ranks: int, between: str, measured_us: float) -> None:
    message = Message(kind, 1 << 28, ranks)
    assert collective_ns(message, H200, between) / 1e3 == pytest.approx(measured_us, rel=0.1)  # type: ignore[arg-type]


def test_eight_h100s_without_sharp_as_others_measured_them() -> None:
    """370 GB/s of bus bandwidth, as nccl-tests reckons it (its issue 212)."""
    size = 1 << 33
    taken = collective_ns(Message("all-reduce", size, 8), find("h100"))
    assert size * 2 * 7 / 8 / taken == pytest.approx(370, rel=0.05)


def test_a_short_message_takes_its_steps_and_a_long_one_the_link() -> None:
    assert collective_ns(Message("all-reduce", 8, 2), H200) == pytest.approx(6_600 + 2 * 600, rel=0.01)
    once, twice = (collective_ns(Message("all-gather", size, 4), H200) for size in (1 << 32, 1 << 33))
    assert twice == pytest.approx(2 * once, rel=0.01)


def test_gpus_without_links_of_their_own_go_through_the_host() -> None:
    message, l4 = Message("all-reduce", 1 << 28, 2), find("l4")
    assert l4.nvlink_gbs == 0
    assert collective_ns(message, l4) == collective_ns(message, l4, "host")
    assert collective_ns(message, l4) > 5 * collective_ns(message, H200)


@given(gpu=gpus, kind=st.sampled_from(KINDS), size=st.integers(0, 1 << 32), ranks=st.integers(2, 7))
def test_more_ranks_or_bytes_never_take_less(gpu: GPU, kind: Kind, size: int, ranks: int) -> None:
    alone = collective_ns(Message(kind, size, ranks), gpu)
    assert alone <= collective_ns(Message(kind, size + 1000, ranks), gpu)
    assert alone <= collective_ns(Message(kind, size, ranks + 1), gpu) * (1 + 1e-9)


@given(gpu=gpus, kind=st.sampled_from(KINDS), size=st.integers(1, 1 << 32), ranks=st.integers(2, 8))
def test_never_faster_than_the_link(gpu: GPU, kind: Kind, size: int, ranks: int) -> None:
    chunks = {"all-reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0}.get(kind, (ranks - 1) / ranks)
    rate = gpu.nvlink_gbs / 2 or gpu.pcie_gbs
    assert collective_ns(Message(kind, size, ranks), gpu) >= chunks * size / rate


@pytest.mark.parametrize("between", ["nvlink", "host"])
def test_our_measurements_are_met_within_a_tenth(between: str) -> None:
    rows = collectives()
    rows = rows[(rows["between"] == between) & (rows["bytes"] >= TOLD_FROM)]
    assert len(rows) == {"nvlink": 105, "host": 75}[between]
    assert np.abs(ratios(rows, issue=17.3) - 1).mean() < 0.08
