import numpy as np
import pytest
from msgspec.structs import replace
from op_lists import base, product

from tracekit.advise import find, refusal
from tracekit.analyzers.predict import compute_bound_from, largest_that_fits
from tracekit.reports.words import sentences

GB = 10**9


def of_products(*costs, **capture):
    """Return a baseline that consists of these products."""
    some = base("a100", precision="bf16", layers=1, **capture)
    ops = some.ops[np.zeros(len(costs), dtype=int)].renumbered().assign(cost=list(costs))
    return replace(some, ops=ops)


def test_products_turn_compute_bound_where_the_two_roofs_meet():
    run = of_products(product(1, 4096, 4096, "bf16"), batch_size=1)
    gpu = run.gpu
    rate, peak = gpu.bandwidth * gpu.copy_efficiency, gpu.sustained_flops("bf16")
    # Of one row: 2 * 4096 * 4096 FLOP, and 2 * (4096 + 4096) bytes beside the weights' 2 * 4096 * 4096.
    expected = 2 * 4096**2 / rate / (2 * 4096**2 / peak - 2 * 8192 / rate)
    assert compute_bound_from(run) == pytest.approx(expected, abs=1)


def test_the_larger_weights_decide():
    small, large = product(4, 64, 64, "bf16"), product(4, 8192, 8192, "bf16")
    both = of_products(small, large, batch_size=4)
    assert compute_bound_from(both) == compute_bound_from(of_products(large, batch_size=4))


def test_the_largest_batch_fills_the_memory():
    run = base("a100", batch_size=2, weight_bytes=20 * GB, peak_memory_bytes=26 * GB)
    assert largest_that_fits(run) == (80 - 20) // 3
    assert "hold a batch of 20" in sentences(find("batching").reason(run))
    assert refusal(find("batching:20"), run) is None
    assert refusal(find("batching:21"), run) == "A batch of 21 does not fit: 80 GB hold one of 20."


def test_unknown_batches_have_no_limits():
    run = base("a100")
    assert (compute_bound_from(run), largest_that_fits(run)) == (None, None)
