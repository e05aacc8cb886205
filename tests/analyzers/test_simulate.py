import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tracekit.analyzers.predict import simulate
from tracekit.analyzers.predict.simulation import QUEUED, SYNC_RETURN_NS, latency_ns, waiting_later

ops = st.lists(st.tuples(st.integers(0, 50_000), st.integers(0, 80_000), st.booleans()), min_size=1, max_size=60)


def one_by_one(rows, latency, gap):
    """Return the latency by its definition, op by op."""
    host, device, spans = 0, -gap, []
    for host_ns, kernel_ns, sync in rows:
        host += host_ns
        if kernel_ns:
            start = max(device + gap, host + latency)
            device = start + kernel_ns
            spans.append((start, device))
        else:
            spans.append((-1, -1))
        if sync:
            host = max(host, max(device, 0) + SYNC_RETURN_NS)
    return spans, max(host, device)


@given(ops, st.integers(0, 9_000), st.integers(0, 2_000))
def test_agrees_with_the_definition(rows, latency, gap):
    host, kernel, sync = map(np.array, zip(*rows, strict=True))
    result = simulate(host, kernel, launch_latency_ns=latency, gap_ns=gap, sync=sync)
    spans, end = one_by_one(rows, latency, gap)
    assert list(zip(result.kernel_start, result.kernel_end, strict=True)) == spans
    assert result.latency_ns == end
    assert latency_ns(host, kernel, launch_latency_ns=latency, gap_ns=gap, sync=sync) == end


def test_the_device_works_beside_the_host_until_a_wait_that_comes_later():
    host, kernel, sync = np.array([10_000.0, 50_000.0]), np.array([30_000.0, 1_000.0]), np.array([True, False])
    at_once = latency_ns(host, kernel, launch_latency_ns=0, sync=sync)
    later = waiting_later(host, kernel, sync, np.array([20_000.0, 0.0]))
    assert at_once == 10_000 + 30_000 + SYNC_RETURN_NS + 50_000 + 1_000
    assert latency_ns(*later[:2], launch_latency_ns=0, sync=later[2]) == at_once - 20_000
    assert host.tolist() == [10_000, 50_000]


def test_a_full_queue_holds_the_host_back():
    """Four blocks of kernels, then host work: it begins when the third block is done."""
    launches = 4 * QUEUED
    host, kernel = [1_000] * launches + [10_000_000], [10_000] * launches + [0]
    third = 1_000 + 5_000 + 3 * QUEUED * 10_000
    result = simulate(host, kernel, launch_latency_ns=5_000)
    assert result.latency_ns == third + 10_000_000
    assert latency_ns(host, kernel, launch_latency_ns=5_000) == result.latency_ns
    assert result.kernel_end[-2] == 1_000 + 5_000 + launches * 10_000


def test_a_graph_is_one_launch_in_the_queue():
    """Two replays of large graphs, and host work between them that does not wait for the first one."""
    nodes = 3 * QUEUED
    replay = [100_000] + [0] * (nodes - 1)
    result = simulate([*replay, 10_000_000, *replay[1:], 0], [10_000] * 2 * nodes + [0], launch_latency_ns=0)
    assert result.host_end[nodes] == 100_000 + 10_000_000


def test_launch_bound_work_takes_the_host_time():
    result = simulate([20_000] * 100, [2_000] * 100, launch_latency_ns=5_000)
    assert result.latency_ns == 100 * 20_000 + 5_000 + 2_000


def test_device_bound_work_takes_the_kernel_time():
    result = simulate([1_000] * 100, [50_000] * 100, launch_latency_ns=5_000, gap_ns=1_000)
    assert result.latency_ns == 1_000 + 5_000 + 100 * 50_000 + 99 * 1_000


def test_nothing_takes_no_time():
    assert simulate([], [], launch_latency_ns=5_000).latency_ns == 0


def test_latency_of_no_op():
    assert latency_ns([], [], launch_latency_ns=5_000) == 0
