"""The cost of an op at another batch size."""

from dataclasses import replace

from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.work import Product, Reduce, grown


def batched(cost: Cost, factor: float) -> Cost:
    """Return the cost with `factor` times as many sequences. Shared tensors, such as weights, are read and written
    once."""
    if cost.family == "optimizer":
        return cost
    work = cost.work.batched(factor) if cost.work else None
    weight_bytes = _weight_bytes(cost, work)
    read = cost.read_bytes - cost.weight_bytes - cost.shared_read
    over_batch = isinstance(work, Reduce) and work.over_batch
    return replace(
        cost,
        flops=grown(cost.flops, factor),
        read_bytes=weight_bytes + cost.shared_read + grown(read, factor),
        write_bytes=cost.shared_write + grown(cost.write_bytes - cost.shared_write, factor),
        weight_bytes=weight_bytes,
        work=work,
        row=grown(cost.row, factor) if over_batch else cost.row,
    )


def _weight_bytes(cost: Cost, after: object) -> int:
    """Return the bytes of weights at the new batch. More routed rows use more experts."""
    before = cost.work
    if isinstance(before, Product) and isinstance(after, Product) and before.routed:
        return round(cost.weight_bytes * after.groups / before.groups)
    return cost.weight_bytes
