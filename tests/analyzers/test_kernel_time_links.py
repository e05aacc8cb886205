"""Copies between memories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analyzers.cost import GPU, all_gpus, copy_ns
from tracekit.analyzers.cost.hardware import find
from tracekit.analyzers.cost.time.links import Link

gpus = st.sampled_from(all_gpus())
links: list[Link] = ["pinned", "pageable", "peer"]


def test_a_large_pinned_copy_on_an_h200() -> None:
    """Measured: 268 MB in 4.85 ms."""
    assert copy_ns(1 << 28, find("h200"), "pinned") / 1e6 == pytest.approx(4.85, rel=0.05)


def test_unpinned_memory_is_slower() -> None:
    h200 = find("h200")
    assert copy_ns(1 << 26, h200, "pageable") > 2 * copy_ns(1 << 26, h200, "pinned")


def test_a_large_copy_to_another_h200() -> None:
    """Measured: 1 GB in 2.72 ms."""
    assert copy_ns(1 << 30, find("h200"), "peer") / 1e6 == pytest.approx(2.72, rel=0.02)


@given(gpu=gpus, link=st.sampled_from(links), size=st.integers(0, 1 << 32), more=st.integers(1, 1 << 30))
def test_copies_stay_below_the_link_and_grow(gpu: GPU, link: Link, size: int, more: int) -> None:
    rate = (gpu.nvlink_gbs / 2 or gpu.pcie_gbs) if link == "peer" else gpu.pcie_gbs
    assert copy_ns(size, gpu, link) >= size / rate
    assert copy_ns(size + more, gpu, link) > copy_ns(size, gpu, link)
