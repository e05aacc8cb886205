"""Compares the modelled latency of runs on an H200 with benchmarks/data/h200_latencies.csv."""

import csv
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import median

import msgspec
import pytest

from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import HostCosts, assumed
from tracekit.calibrate import applied
from tracekit.calibrate.files import decode
from tracekit.capture import complete, steps
from tracekit.capture.fake.model_trace import write_trace
from tracekit.run import Settings

DATA = Path(__file__).parents[2] / "benchmarks" / "data"
H200 = hardware.find("h200")
ROWS = list(csv.DictReader((DATA / "h200_latencies.csv").open()))
HOST_BOUND = [
    ("gpt2", "decode", "fp32"),
    ("llama-3.2-1b", "decode", "bf16"),
    ("mistral-7b", "decode", "bf16"),
    ("qwen2-0.5b", "decode", "bf16"),
]
OTHERS = [("gpt2", "train", "fp32"), ("bert-base-uncased", "prefill", "fp32"), ("llama-3.2-1b", "train", "bf16")]


def measured_us(model: str, workload: str, dtype: str, *processes: str) -> list[float]:
    """Return the median latency in each process that ran it at batch 1 with SDPA."""
    key = {"model": model, "workload": workload, "dtype": dtype, "batch_size": "1", "attention": "sdpa"}
    rows = [row for row in ROWS if key.items() <= row.items()]
    return [float(row["median_us"]) for row in rows if not processes or row["process"] in processes]


@pytest.fixture(scope="module", autouse=True)
def _recorded_once() -> Iterator[None]:
    """Record a run once, because it is the same on every host."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "run", cache(steps.run))
        yield


@pytest.fixture(scope="module")
def assumed_us(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, str, str]], Interval]:
    """Return the latency of a run, modelled with the host that is assumed without a calibration."""
    return cache(lambda run: modelled_us(run, assumed(H200), tmp_path_factory.mktemp("assumed")))


def modelled_us(run: tuple[str, str, str], host: HostCosts, folder: Path) -> Interval:
    model, workload, dtype = run
    settings = complete(Settings(model=model, workload=workload, dtype=dtype, device="model", gpu="h200", steps=1))
    latency = write_trace(settings, H200, folder / "trace.json.gz", host=host).latency
    assert latency is not None
    return Interval(latency.p10_us, latency.median_us, latency.p90_us)


def calibration_of_that_day() -> HostCosts:
    path = DATA / "h200_calibration.json"
    return applied.host_costs(decode(path.read_bytes(), path), H200)


@pytest.mark.parametrize("run", [*HOST_BOUND, *OTHERS], ids="-".join)
def test_latency_is_within_12_percent(run: tuple[str, str, str], assumed_us) -> None:
    assert assumed_us(run).expected == pytest.approx(median(measured_us(*run)), rel=0.12)


@pytest.mark.parametrize("run", HOST_BOUND, ids="-".join)
def test_a_calibration_narrows_the_interval_around_what_ran_alone(
    run: tuple[str, str, str], assumed_us, tmp_path: Path
) -> None:
    wide, narrow = assumed_us(run), modelled_us(run, calibration_of_that_day(), tmp_path)
    assert narrow.high - narrow.low < 0.5 * (wide.high - wide.low)
    alone = measured_us(*run, "alone")
    assert alone and narrow.expected == pytest.approx(median(alone), rel=0.08)
    assert all(wide.low < each < wide.high for each in measured_us(*run))


def test_what_a_calibration_measured_is_what_the_constants_are_relative_to() -> None:
    host = calibration_of_that_day()
    assert host.calibrated and host.base_us == pytest.approx(0.85 * assumed(H200).base_us, rel=0.02)
    data = msgspec.json.decode((DATA / "h200_calibration.json").read_bytes())
    assert data["host_us"]["pointwise"][1] == pytest.approx(4.93, abs=0.01)
