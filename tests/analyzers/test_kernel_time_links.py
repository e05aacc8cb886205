"""Copies between memories and collectives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.hardware import GPU, all_gpus, find
from analyzers.kernel_time.links import Collective, Link, collective_ns, copy_ns

gpus = st.sampled_from(all_gpus())
links: list[Link] = ["pinned", "pageable", "peer"]
collectives: list[Collective] = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"]


def test_a_large_pinned_copy_on_an_h200() -> None:
    """Measured: 268 MB in 4.85 ms."""
    assert copy_ns(1 << 28, find("h200"), "pinned") / 1e6 == pytest.approx(4.85, rel=0.05)


def test_unpinned_memory_is_slower() -> None:
    h200 = find("h200")
    assert copy_ns(1 << 26, h200, "pageable") > 2 * copy_ns(1 << 26, h200, "pinned")


def test_an_all_reduce_carries_what_a_reduce_scatter_and_an_all_gather_do() -> None:
    h100, size = find("h100"), 1 << 30
    whole, parts = (collective_ns(kind, size, 8, h100) for kind in ("all-reduce", "all-gather"))
    assert whole == pytest.approx(2 * parts, rel=0.02)
    busbw = size * 2 * 7 / 8 / whole
    assert busbw == pytest.approx(370, rel=0.02)


@given(gpu=gpus, link=st.sampled_from(links), size=st.integers(0, 1 << 32), more=st.integers(1, 1 << 30))
def test_copies_stay_below_the_link_and_grow(gpu: GPU, link: Link, size: int, more: int) -> None:
    rate = (gpu.nvlink_gbs / 2 or gpu.pcie_gbs) if link == "peer" else gpu.pcie_gbs
    assert copy_ns(size, gpu, link) >= size / rate
    assert copy_ns(size + more, gpu, link) > copy_ns(size, gpu, link)


@given(gpu=gpus, kind=st.sampled_from(collectives), size=st.integers(0, 1 << 32), ranks=st.integers(1, 63))
def test_collectives_grow_with_ranks(gpu: GPU, kind: Collective, size: int, ranks: int) -> None:
    assert collective_ns(kind, size, ranks, gpu) <= collective_ns(kind, size, ranks + 1, gpu)
