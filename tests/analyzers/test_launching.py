"""The launch latency of a trace, and of a GPU in the catalogue: both start at the return of the call."""

import pandas as pd
import pytest

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict.waiting import LAUNCH_LATENCY_NS, launch_latency_ns, queued_gap_ns

HOST = pd.DataFrame({"duration_ns": [5_000, 4_000, 9_000]})


def work(*rows: tuple[int, int, int]) -> pd.DataFrame:
    """(row of its launch, time from there to its start, idle time before it)."""
    return pd.DataFrame(rows, columns=["launch", "delay_ns", "gap_ns"])


def test_the_call_itself_is_host_time():
    latency = launch_latency_ns(work((0, 7_000, 8_000), (1, 6_500, 6_500), (2, 8_500, 9_000)), HOST)
    assert latency == 2_000  # 2,000 and 2,500 after their calls; the third began before its call had returned


def test_queued_work_and_unknown_launches_tell_nothing():
    assert launch_latency_ns(work((0, 90_000, 0), (-1, -1, 5_000)), HOST) == LAUNCH_LATENCY_NS


def test_the_gap_of_a_graph_is_the_mean_of_those_between_its_nodes():
    """The first node waits for the host, and every third for what the graph says."""
    gaps = [90_000, *[400, 400, 4_000] * 33]
    nodes = pd.DataFrame({"launch": 7, "graph": 1, "delay_ns": 50_000, "gap_ns": gaps})
    assert queued_gap_ns(nodes) == 1_600
    assert queued_gap_ns(nodes.assign(graph=-1)) == 400


def test_the_catalogue_counts_from_the_call_and_is_split_there():
    gpu = hardware.find("h200")
    assert gpu.launch_call_us + gpu.launch_latency_us == pytest.approx(gpu.launch_us)
    assert gpu.launch_latency_us == pytest.approx(2.3, abs=0.1)
