"""`.ncu-rep` files, read through a fake of NVIDIA's module."""

import gzip
import sys
from types import SimpleNamespace

import pytest

from tracekit.analyzers.core import InputError, MissingPackageError
from tracekit.analyzers.trace import load

MAGIC = b"NVR\x00 and what only the module can read"


class Metric:
    def __init__(self, value, unit=""):
        self._value, self._unit = value, unit

    def value(self):
        return self._value

    def unit(self):
        return self._unit


class Action:
    NameBase_DEMANGLED = 2

    def __init__(self, name, **metrics):
        self._name, self._metrics = name, {key.replace("_DOT_", "."): value for key, value in metrics.items()}

    def name(self, base):
        assert base == self.NameBase_DEMANGLED
        return self._name

    def metric_names(self):
        return tuple(self._metrics)

    def metric_by_name(self, name):
        return self._metrics[name]


SIZES = {"grid_dim_x": 8, "grid_dim_y": 36, "grid_dim_z": 1, "block_dim_x": 128, "block_dim_y": 1, "block_dim_z": 1}
GRID = {f"launch__{name}": Metric(size) for name, size in SIZES.items()}
TIMED = Action(
    "void at::f<float>(int)",
    **GRID,
    gpu__time_duration_DOT_sum=Metric(63_040, "nsecond"),
    dram__bytes_read_DOT_sum=Metric(1.5, "Mbyte"),
    dram__bytes_write_DOT_sum=Metric(500_000, "byte"),
    device__attribute_display_name=Metric("NVIDIA H200"),
    device__attribute_compute_capability_major=Metric(9),
    device__attribute_compute_capability_minor=Metric(0),
    launch__device_id=Metric(0),
    launch__stream_id=Metric(7),
    launch__sm_count=Metric(132, "SM"),
    not_wanted=Metric(5),
)


@pytest.fixture
def module(monkeypatch):
    """The module, and the bytes of the files that it was given."""
    loaded = []

    def give(*parts):
        ranges = [SimpleNamespace(num_actions=lambda p=p: len(p), action_by_idx=p.__getitem__) for p in parts]

        def load_report(path):
            with open(path, "rb") as file:  # noqa: PTH123
                loaded.append(file.read())
            return SimpleNamespace(num_ranges=lambda: len(ranges), range_by_idx=ranges.__getitem__)

        monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=load_report))
        return loaded

    return give


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_report_is_read_through_the_module(tmp_path, module, pack):
    loaded = module([TIMED], [TIMED])
    path = tmp_path / "report"
    path.write_bytes(pack(MAGIC))
    trace = load(path)
    assert loaded == [MAGIC]
    assert len(trace.counters) == 2
    row = trace.counters.iloc[1]
    assert (row["name"], row["grid"], row["block"]) == ("void at::f<float>(int)", "(8, 36, 1)", "(128, 1, 1)")
    assert (row["blocks"], row["threads_per_block"], row["device"], row["stream"]) == (288, 128, 0, 7)
    assert (row["duration_ns"], row["dram_bytes"]) == (63_040, 2_000_000)
    device = trace.metadata.devices[0]
    assert (device.name, device.sms, device.compute_capability) == ("NVIDIA H200", 132, (9, 0))


def test_without_launches_it_says_so(tmp_path, module):
    module([])
    path = tmp_path / "report.ncu-rep"
    path.write_bytes(MAGIC)
    with pytest.raises(InputError, match="contains no kernel"):
        load(path)


def test_without_the_module_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    path = tmp_path / "report.ncu-rep"
    path.write_bytes(MAGIC)
    with pytest.raises(MissingPackageError) as caught:
        load(path)
    assert "pip install 'ncu-report>=2025.3'" in caught.value.hint
    assert "--page raw" in caught.value.hint
