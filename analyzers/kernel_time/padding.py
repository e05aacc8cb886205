"""GEMMs whose sizes are padded to whole vectors of 16 bytes."""

from dataclasses import replace

from tracekit.analyzers.costs.call import ELEMENT_BYTES, Cost
from tracekit.analyzers.costs.work import Product

VECTOR_BYTES = 16
"""Bytes that a thread loads at once, which rows in memory must be whole multiples of."""


def multiple_of(cost: Cost) -> int:
    """Return the number of elements of a vector."""
    return max(1, round(VECTOR_BYTES / ELEMENT_BYTES[cost.precision]))


def up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def padded(cost: Cost) -> Cost:
    """Return the cost of a GEMM with padded sizes."""
    shape, multiple = cost.work, multiple_of(cost)
    assert isinstance(shape, Product)
    n, k = up(shape.n, multiple), up(shape.k, multiple)
    m = up(shape.m, multiple) if shape.gradient or shape.m in (shape.n, shape.k) else shape.m
    grown = (m * n * k) / (shape.m * shape.n * shape.k)
    wider = max(n / shape.n, k / shape.k)
    return replace(
        cost,
        flops=round(cost.flops * grown),
        read_bytes=round(cost.read_bytes * wider),
        write_bytes=round(cost.write_bytes * m * n / (shape.m * shape.n)),
        weight_bytes=round(cost.weight_bytes * wider),
        work=replace(shape, m=m, n=n, k=k),
    )
