"""The files of a run's folder that somebody else wrote: each field is of its type and range, and sizes are bounded."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tracekit.analyzers.core import InputError, Interval
from tracekit.analyzers.results import DeviceReading, Difference, Verification, Verified
from tracekit.cli import main
from tracekit.run import VERIFY, run_json
from tracekit.run.folder import TIMED
from tracekit.run.kernels_json import WrittenKernels, read_kernel_times
from tracekit.run.verify_json import read_verification, to_json

SAMPLE = Path(__file__).parents[1] / "examples" / "traces" / "h200_gpt2_prefill.json.gz"
NEAR = Interval(1.0, 1.2, 1.5)
STATE = DeviceReading(1980, 2619, 40, 300.0, ())
RESULT = Verified("compile", "torch.compile", NEAR, NEAR, difference=Difference(0.0, 0.0, None, 1.0))
MEASURED = Verification("0.1", {"model": "gpt2"}, 0, "NVIDIA H200", {}, 64, "tokens", 1, (RESULT,), before=STATE)
KERNELS = {"gpu": "h200", "kernels": {"k": {"after_ns": 1, "before_ns": 2, "roof_fraction": 0, "launch": {"B": 1}}}}
SETTINGS = {"model": "gpt2", "gpu": "h200", "device": "model"}


@pytest.fixture
def run(tmp_path):
    """Return a folder with all files that describe a run beside its trace."""
    (tmp_path / "trace.json.gz").write_bytes(SAMPLE.read_bytes())
    (tmp_path / "run.json").write_text(json.dumps({"settings": SETTINGS}))
    (tmp_path / VERIFY).write_text(to_json(MEASURED))
    (tmp_path / TIMED).write_text(json.dumps(KERNELS))
    return tmp_path


def invoked(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code in (0, 1) and "bug of" not in done.output, done.output
    return done


BAD = [
    b"",
    b"[]",
    b"\xff",
    b"{" * 9,
    b'{"settings": ' + b"[" * 100_000,
    b'{"a": ' + b"[" * 100_000,
    gzip.compress(b" " * (1 << 21) + b"{}"),
]


@pytest.mark.parametrize("data", BAD, ids=["empty", "list", "bytes", "cut", "deep", "deep elsewhere", "gzip"])
def test_files_that_are_damaged_deep_or_large_are_refused(run, monkeypatch, data):
    monkeypatch.setenv("TRACEKIT_LIMIT_DOCUMENT", str(1 << 20))
    for name, read in (("run.json", run_json.read), (VERIFY, lambda folder: read_verification(folder / VERIFY))):
        (run / name).write_bytes(data)
        with pytest.raises(InputError, match=f"{name} (cannot be read|has more than)"):
            read(run)
    assert invoked("analyze", run, "--no-cache").exit_code == 1
    assert invoked("verify", run).exit_code == 1
    (run / TIMED).write_bytes(data)
    assert read_kernel_times(run, hardware_of("h200")) == WrittenKernels("h200")


def hardware_of(name):
    from tracekit.analyzers.cost import hardware

    return hardware.find(name)


def _numbers(value, path=()):
    """Yield the paths to the numbers of a JSON document."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        yield from _numbers(each, (*path, key))
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def _with(document, path, value):
    changed = json.loads(json.dumps(document))
    held = changed
    for key in path[:-1]:
        held = held[key]
    held[path[-1]] = value
    return json.dumps(changed).encode()


@pytest.mark.parametrize("value", [2**63, -(2**63), 1e300, -1e300, 10**400])
def test_every_number_of_a_verification_and_of_kernels_has_a_range(value):
    for document, kind in ((json.loads(to_json(MEASURED)), Verification), (KERNELS, WrittenKernels)):
        paths = [path for path in _numbers(document) if path != ("seed",)]
        assert len(paths) > 3
        for path in paths:
            with pytest.raises((msgspec.ValidationError, ValueError)):
                msgspec.json.decode(_with(document, path, value), type=kind)
