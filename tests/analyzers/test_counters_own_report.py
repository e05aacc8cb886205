"""Our own `.ncu-rep` of an H200 (examples/counters/two_kernels.py), beside the CSV that `ncu` exported of it."""

import re

import pytest
from ncu_csv import COUNTERS
from pandas.testing import assert_frame_equal

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load

pytest.importorskip("ncu_report", reason="NVIDIA's module reads .ncu-rep files")

REPORT = COUNTERS / "h200_two_kernels.ncu-rep"
SHARES = ["dram_throughput", "sm_throughput", "occupancy"]


@pytest.fixture(scope="module")
def report():
    return load(REPORT)


def cut(folder, percent):
    whole, path = REPORT.read_bytes(), folder / "cut.ncu-rep"
    path.write_bytes(whole[: len(whole) * percent // 100])
    return path


def test_it_is_the_same_as_its_csv(report):
    """Counts are equal; shares are equal to the digits in the CSV."""
    exported = load(COUNTERS / "h200_two_kernels.ncu.csv.gz")
    assert_frame_equal(report.counters.drop(columns=SHARES), exported.counters.drop(columns=SHARES), check_exact=True)
    assert_frame_equal(report.counters[SHARES], exported.counters[SHARES], rtol=0, atol=1e-8)
    assert_frame_equal(report.device.drop(columns="occupancy"), exported.device.drop(columns="occupancy"))
    assert_frame_equal(report.problems, exported.problems)
    assert report.metadata == exported.metadata


def test_the_counters_are_those_of_the_kernels(report):
    """A sum of 2²² floats in blocks of 1,024, and a product of 1,024³ in bf16 by tiles of 64²."""
    total, product = report.counters.iloc[0], report.counters.iloc[1]
    assert (total["name"], product["name"]) == ("add_kernel", "matmul_kernel")
    assert (total["blocks"], product["blocks"]) == ((1 << 22) // 1024, (1024 // 64) ** 2)
    assert (total["tensor_flops"], product["tensor_flops"]) == (0, 2 * 1024**3)
    assert total["dram_read_bytes"] == pytest.approx(2 * 4 * (1 << 22), rel=0.001)
    assert product["dram_read_bytes"] == pytest.approx(2 * 2 * 1024**2, rel=0.01)
    assert report.metadata.devices[0].name == "NVIDIA H200"


@pytest.mark.parametrize("percent", [2, 25, 50])
def test_cut_off_before_its_first_launch_ends_it_is_refused(tmp_path, percent):
    with pytest.raises(InputError, match="contains no kernel"):
        load(cut(tmp_path, percent))


@pytest.mark.parametrize("percent", [70, 80, 99])
def test_cut_off_later_it_gives_the_launch_before(tmp_path, report, percent):
    loaded = load(cut(tmp_path, percent))
    assert_frame_equal(loaded.counters, report.counters[:1], check_categorical=False)
    assert set(loaded.problems["code"]) == {"no-timeline", "truncated"}


def test_the_sample_says_nothing_of_the_machine_that_made_it():
    content = REPORT.read_bytes()
    addresses = set(re.findall(rb"\b(?:\d{1,3}\.){3}\d{1,3}\b|[0-9a-f]{2,4}::[0-9a-f:]+|%eth\d", content))
    assert addresses <= {b"127.0.0.1"}
    assert not re.search(rb"/(?:root|home|Users)/", content)
